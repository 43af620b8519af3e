"""CSV source: files with a header, matched to columns by name.

The format is RFC 4180 in UTF-8: commas, doubled quotes and line breaks within quotes; `.gz` is decompressed.
Extra columns are ignored. Fields are parsed by `penstock.io.files.text_values` (bytes are the field's UTF-8).
An empty field, quoted or not, is null in a nullable column, the empty string in a non-nullable `str` or
`bytes` column, and otherwise an error. CSV cannot hold structs and lists.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.errors import BadInput
from penstock.expr.types import BytesType, Field, StrType
from penstock.io.files.file_reader import Block, FileFormat, Record, open_format, unreadable
from penstock.io.files.file_source import Files
from penstock.io.files.json_files import checked_weight
from penstock.io.files.text_blocks import WHOLE, Part, Position, line_blocks, line_parts, open_bytes
from penstock.io.files.text_values import Unfit, parser_of, shortened
from penstock.io.requirements import refuse_untyped
from penstock.io.source import WEIGHT, BadRecord, Feed

if TYPE_CHECKING:
    import pyarrow as pa

    from penstock.io.files.csv_columns import CsvColumns


@dataclass(frozen=True, init=False)
class CsvFiles(Files):
    __doc__ = "CSV files with a header. " + (Files.__doc__ or "")


_WELL_QUOTED = re.compile(rb'[^"]*+(?:(?<![^,\r\n])"(?:[^"]++|"")*+"(?![^,\r\n])[^"]*+)*+')
_OPEN_FIELD = re.compile(rb'(?<![^,\r\n])"(?:[^"]++|"")*+')
FromText = Callable[[str], Any]
RowOf = Callable[[Sequence[str]], Any]


@dataclass(frozen=True)
class _Header:
    """Header of a file, matched with fields. positions: of the fields, None for those not in the file."""

    width: int
    fields: list[Field]
    positions: list[int | None]
    row_of: RowOf

    def table(self, lines: bytes) -> pa.Table | None:
        return self._columns.table(lines)

    @cached_property
    def _columns(self) -> CsvColumns:
        # Not at the top, because small files need no Arrow, which is expensive to import.
        from penstock.io.files.csv_columns import CsvColumns

        return CsvColumns(self.width, self.fields, self.positions)


class CsvFormat(FileFormat):
    def __init__(self, feed: Feed) -> None:
        super().__init__(feed)
        declared = {f.name: f for f in (*feed.schema.fields, *self.fields)}
        self._parsers = {name: field_parser(feed.name, f) for name, f in declared.items()}

    def blocks(self, path: Path, part: Part = WHOLE) -> Iterator[Block]:
        before = Position(begin=partial(self._count, path, part.start) if part.start else None)
        with open_bytes(path) as file:
            first = file.readline()
            if not _is_simple(first):
                yield self._records(path, before, chain([first], line_blocks(file)))
                return
            header = self._header(path, next(csv.reader([_text(first)], strict=True)))
            before.line = 0 if part.start else 1
            lines = b""
            blocks = line_blocks(file, part)
            for more in blocks:
                lines += more
                whole = quoting(lines)
                if whole is None:
                    continue
                if not whole:
                    break
                found = self.parsed(lines, partial(header.table, lines))
                if found is None:
                    before.find()
                    yield self._records(path, before, [lines], header)
                else:
                    block, rows = found
                    yield block
                    before.row += rows
                    before.line += _count_lines(lines)
                lines = b""
            if lines:
                # Where a record ends is known only by reading all of them one by one.
                before.find()
                yield self._records(path, before, chain([lines], blocks), header)

    def parts(self, path: Path, size: int) -> list[Part]:
        with open_bytes(path) as file:
            divisible = _is_simple(file.readline()) and not any(b'"' in block for block in line_blocks(file))
        return line_parts(path, size) if divisible else [WHOLE]

    def _records(
        self, path: Path, before: Position, blocks: Iterable[bytes], header: _Header | None = None
    ) -> Iterator[Record]:
        """Read records one by one, after the header if it is not known yet."""
        lines = chain.from_iterable(io.StringIO(_text(block), newline="") for block in blocks)
        reader = csv.reader(lines, strict=True)
        try:
            if header is None:
                names = next(reader, None)
                if names is None:
                    raise unreadable(self.feed.name, path, "it is empty, without even a header")
                header = self._header(path, names)
            end = reader.line_num
            for fields in reader:
                line, end = end + 1, reader.line_num
                if fields:
                    before.row += 1
                    yield self._record(path, before.row, before.line + line, fields, header)
        except csv.Error as error:
            line = before.line + reader.line_num
            raise unreadable(self.feed.name, path, f"line {line} is not CSV: {error}") from error
        before.line += end

    def _record(self, path: Path, row: int, line: int, fields: list[str], header: _Header) -> Record:
        try:
            if len(fields) != header.width:
                raise Unfit(f"the header has {header.width} columns, the row {len(fields)}")
            return header.row_of(fields)
        except Unfit as problem:
            text = ",".join(fields).encode(errors="surrogateescape").decode(errors="replace")
            return BadRecord(str(path), row, str(problem), shortened(text, 200), line)

    def _count(self, path: Path, stop: int) -> tuple[int, int]:
        """Count the rows and lines before a part."""
        with open_bytes(path) as file:
            blocks = line_blocks(file, Part(0, stop))
            lines = chain.from_iterable(io.StringIO(_text(block), newline="") for block in blocks)
            reader = csv.reader(lines, strict=True)
            return sum(map(bool, reader)) - 1, reader.line_num

    def _header(self, path: Path, names: list[str]) -> _Header:
        """Match a header with the fields. Raises `UnreadableSource` if it lacks one."""
        positions = {f.name: self._position(path, names, f) for f in self.fields}
        feed = self.feed
        parts: list[tuple[int, str, FromText]] = []
        for name in [*feed.schema.names, *([] if feed.append else [WEIGHT])]:
            at = positions.get(name)
            parts.append((0, name, _null) if at is None else (at, name, self._parsers[name]))
        row, decode = converter(parts), feed.decode
        if decode is not None:
            row_of: RowOf = lambda fields: decode(row(fields))  # noqa: E731
        elif feed.append:
            row_of = row
        else:
            row_of = lambda fields: _with_weight(row(fields))  # noqa: E731
        return _Header(len(names), self.fields, list(positions.values()), row_of)

    def _position(self, path: Path, header: list[str], declared: Field) -> int | None:
        count = header.count(declared.name)
        if count == 1:
            return header.index(declared.name)
        if count == 0 and declared.nullable:
            return None
        problem = "no column" if count == 0 else f"{count} columns"
        raise unreadable(
            self.feed.name,
            path,
            f"its header has {problem} {declared.name!r}: {shortened(','.join(header), 200)}",
            "correct the header, or declare the column `| None` if it may be missing",
        )


def quoting(lines: bytes) -> bool | None:
    """Check that lines from the start of a record have quotes only around fields, and end with a record.

    None if the last field is open, so that further lines have to tell.
    """
    if b'"' not in lines:
        return True
    match = _WELL_QUOTED.match(lines)
    end = match.end() if match is not None else 0
    if end == len(lines):
        return True
    is_open = _OPEN_FIELD.fullmatch(lines, end) and len(lines) - end <= 4 * csv.field_size_limit()
    return None if is_open else False


def _is_simple(line: bytes) -> bool:
    """Check that the first line of a file is its whole header."""
    text = line.removesuffix(b"\n").removesuffix(b"\r")
    return 0 < len(text) <= csv.field_size_limit() and b"\r" not in text and quoting(text) is True


def _text(lines: bytes) -> str:
    return lines.decode("utf-8", "surrogateescape")


def _count_lines(lines: bytes) -> int:
    return lines.count(b"\n") + (lines.count(b"\r") - lines.count(b"\r\n") if b"\r" in lines else 0)


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
        from_text = parser_of(declared.type)
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


@open_format.register
def _(source: CsvFiles, feed: Feed) -> FileFormat:
    refuse_untyped(feed.schema, f"source {feed.name!r}, CSV files")
    return CsvFormat(feed)
