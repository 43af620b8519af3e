"""CSV source: files with a header, matched to columns by name.

The format is RFC 4180 in UTF-8: commas, doubled quotes and line breaks within quotes; `.gz` is decompressed.
Extra columns are ignored. Fields are parsed by `penstock.io.files.text_values` (bytes are the field's UTF-8).
An empty field, quoted or not, is null in a nullable column, the empty string in a non-nullable `str` or
`bytes` column, and otherwise an error. CSV cannot hold structs and lists.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.errors import BadInput
from penstock.expr.types import INT64, BytesType, Field, StrType
from penstock.io.files.file_reader import FileFormat, FilesReader, Record, open_bytes, unreadable
from penstock.io.files.file_source import Files, Listing
from penstock.io.files.json_files import checked_weight
from penstock.io.files.text_values import Unfit, parse, shortened
from penstock.io.requirements import refuse_untyped
from penstock.io.source import WEIGHT, BadRecord, Feed, Reader, open_source


@dataclass(frozen=True, init=False)
class CsvFiles(Files):
    __doc__ = "CSV files with a header. " + (Files.__doc__ or "")


FromText = Callable[[str], Any]
RowOf = Callable[[Sequence[str]], Any]


class CsvFormat(FileFormat):
    def __init__(self, feed: Feed) -> None:
        feed.refuse_weight_column()
        self._feed = feed
        self._columns = [(f, field_parser(feed.name, f)) for f in feed.schema.fields]
        self._weight = Field(WEIGHT, INT64, nullable=True)

    def records(self, path: Path, skip: int) -> Iterator[Record]:
        with open_bytes(path) as raw:
            text = io.TextIOWrapper(raw, encoding="utf-8-sig", errors="surrogateescape", newline="")
            reader = csv.reader(text, strict=True)
            row = 0
            try:
                header = next(reader, None)
                if header is None:
                    raise unreadable(self._feed.name, path, "it is empty, without even a header")
                convert = self._row_of(path, header)
                first_line = reader.line_num + 1
                for fields in reader:
                    line, first_line = first_line, reader.line_num + 1
                    if not fields:
                        continue
                    row += 1
                    if row > skip:
                        yield self._record(path, row, line, fields, convert, len(header))
            except csv.Error as error:
                raise unreadable(
                    self._feed.name, path, f"line {reader.line_num} is not CSV: {error}"
                ) from error

    def _record(
        self, path: Path, row: int, line: int, fields: list[str], convert: RowOf, width: int
    ) -> Record:
        try:
            if len(fields) != width:
                raise Unfit(f"the header has {width} columns, the row {len(fields)}")
            return convert(fields)
        except Unfit as problem:
            text = ",".join(fields).encode(errors="surrogateescape").decode(errors="replace")
            return BadRecord(str(path), row, str(problem), shortened(text, 200), line)

    def _row_of(self, path: Path, header: list[str]) -> RowOf:
        """Build a converter from a file's fields to rows.

        Raises `UnreadableSource` for a header that does not match.
        """
        wanted = [*self._columns]
        if not self._feed.append and WEIGHT in header:
            wanted.append((self._weight, field_parser(self._feed.name, self._weight)))
        parts: list[tuple[int, str, FromText]] = []
        for declared, from_text in wanted:
            at = self._position(path, header, declared)
            if at is None:
                at, from_text = 0, _null
            parts.append((at, declared.name, from_text))
        row = converter(parts)
        decode = self._feed.decode
        if decode is not None:
            return lambda fields: decode(row(fields))
        if self._feed.append:
            return row
        if WEIGHT in header:
            return lambda fields: _with_weight(row(fields))
        return lambda fields: (*row(fields), 1)

    def _position(self, path: Path, header: list[str], declared: Field) -> int | None:
        count = header.count(declared.name)
        if count == 1:
            return header.index(declared.name)
        if count == 0 and declared.nullable:
            return None
        problem = "no column" if count == 0 else f"{count} columns"
        raise unreadable(
            self._feed.name,
            path,
            f"its header has {problem} {declared.name!r}: {shortened(','.join(header), 200)}",
            "correct the header, or declare the column `| None` if it may be missing",
        )


def _null(_: str) -> None:
    return None


def _with_weight(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[:-1], checked_weight(row[-1]))


def converter(
    parts: list[tuple[int, str, FromText]],
) -> Callable[[Sequence[str]], tuple[Any, ...]]:
    def row(fields: Sequence[str]) -> tuple[Any, ...]:
        out: list[Any] = []
        for at, name, from_text in parts:
            try:
                out.append(from_text(fields[at]))
            except Unfit as problem:
                raise Unfit(f"{name}: {problem}") from None
        return tuple(out)

    return row


def field_parser(source: str, declared: Field) -> FromText:
    """Build a parser from field text to internal values. Raises `BadInput` for types without a CSV form."""
    try:
        from_text = parse(declared.type)
    except TypeError:
        raise BadInput(
            f"source {source!r}: column {declared.name!r} is a {declared.type}, which a CSV file cannot hold",
            fix="use JSON or Parquet, or read the column as str and parse it in the flow",
            source=source,
            column=declared.name,
        ) from None
    if declared.nullable:
        return lambda text: from_text(text) if text else None
    if isinstance(declared.type, StrType | BytesType):
        return from_text

    def needed(text: str) -> Any:
        if not text:
            raise Unfit(f"it is empty, but {declared.type} is declared without null")
        return from_text(text)

    return needed


@open_source.register
def _(source: CsvFiles, feed: Feed) -> Reader:
    refuse_untyped(feed.schema, f"source {feed.name!r}, CSV files")
    return FilesReader(Listing(feed.name, source.path, feed.skip), CsvFormat(feed), feed, source)
