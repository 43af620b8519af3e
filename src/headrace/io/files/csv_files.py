"""CSV source: files with a header, matched to columns by name, or without one, in the declared order.

The format is RFC 4180 in UTF-8 (commas, doubled quotes, line breaks within quotes), unless the source has
other options: see `headrace.io.files.csv_dialect`. `.gz` is decompressed. With a header, extra columns are
ignored. Fields are parsed by `headrace.io.files.text_values` (bytes are the field's UTF-8). An empty field,
quoted or not, is null in a nullable column, the empty string in a non-nullable `str` or `bytes` column, and
otherwise an error. A null word is an error in every non-nullable column. CSV cannot hold structs and lists.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, UnreadableSource, nearest
from headrace.expr.expression_errors import explains_calls
from headrace.expr.types import BytesType, Field, StrType, with_article
from headrace.io.files.csv_dialect import CsvDialect, Malformed
from headrace.io.files.file_reader import Block, FileFormat, Record, near_miss, open_format, unreadable
from headrace.io.files.file_source import (
    OF_OTHER_READERS,
    WHOLE,
    BlockPosition,
    FilePart,
    Files,
    line_blocks,
    line_parts,
    open_bytes,
)
from headrace.io.files.json_files import checked_weight
from headrace.io.files.text_values import UnfitValue, parser_of, shortened
from headrace.io.source import WEIGHT, BadRecord, Feed, printable, refuse_untyped, set_fields

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.io.files.text_columns import CsvColumns


_OF_OTHER_READERS = {
    **OF_OTHER_READERS,
    **dict.fromkeys(("delimiter", "separator", "delim"), "sep=';'"),
    **dict.fromkeys(("quotechar", "quote_char", "quotes"), "quote='\"'"),
    **dict.fromkeys(("escapechar", "escape_char"), r"escape='\\'"),
    **dict.fromkeys(("charset", "fileEncoding"), "encoding='cp1252'"),
    **dict.fromkeys(("na_values", "null_values", "nullValue", "nulls"), "null=['NA', '-']"),
    **dict.fromkeys(("has_header", "hasHeader"), "header=False, with columns in the declared order"),
    "compression": "leave it out: .gz is decompressed",
}


@dataclass(frozen=True, init=False)
class CsvFiles(Files):
    __doc__ = (
        "CSV files, by default with a header, commas and double quotes, in UTF-8. "
        + (Files.__doc__ or "").rstrip()
        + """

    sep, quote, escape, encoding, header, null: the form of the files, as `CsvDialect` defines it:
    `CsvFiles("in", sep=";", encoding="cp1252", null=["NA", "-"])`. `null` is a text or several.

    Raises `BadInput` for options that no CSV file can have.
    """
    )

    sep: str
    quote: str
    escape: str | None
    encoding: str
    header: bool
    null: tuple[str, ...]

    @explains_calls(elsewhere=_OF_OTHER_READERS)
    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        sep: str = ",",
        quote: str = '"',
        escape: str | None = None,
        encoding: str = "utf-8",
        header: bool = True,
        null: str | Iterable[str] | None = None,
        dead_letter: str | os.PathLike[str] | None = None,
        files_per_tick: int | None = None,
        max_value_bytes: int | None = None,
    ) -> None:
        null = () if null is None else null
        is_one = isinstance(null, str) or not isinstance(null, Iterable)
        words: tuple[Any, ...] = (null,) if is_one else tuple(null)
        super().__init__(
            path, dead_letter=dead_letter, files_per_tick=files_per_tick, max_value_bytes=max_value_bytes
        )
        form = CsvDialect(sep, quote, escape, encoding, header, words)
        set_fields(self, **{name: getattr(form, name) for name in CsvDialect.__slots__})

    @property
    def dialect(self) -> CsvDialect:
        return CsvDialect(self.sep, self.quote, self.escape, self.encoding, self.header, self.null)


_NO_QUOTES = 'if quotes are ordinary characters: CsvFiles(..., quote=""), or csv:PATH?quote='

FromText = Callable[[str], Any]
RowOf = Callable[[Sequence[str]], Any]


@dataclass(frozen=True)
class _Header:
    """Header of a file, matched with fields. positions: of the fields; None for fields not in the file."""

    dialect: CsvDialect
    width: int
    fields: list[Field]
    positions: list[int | None]
    row_of: RowOf

    def table(self, lines: bytes) -> pa.Table | None:
        return self._columns.table(lines)

    @cached_property
    def _columns(self) -> CsvColumns:
        # Not at the top, because small files need no Arrow, which is expensive to import.
        from headrace.io.files.text_columns import CsvColumns

        return CsvColumns(self.dialect, self.width, self.fields, self.positions)


class CsvFormat(FileFormat):
    def __init__(self, feed: Feed, dialect: CsvDialect, max_value_bytes: int | None = None) -> None:
        super().__init__(feed, max_value_bytes)
        self._dialect = dialect
        declared = {f.name: f for f in (*feed.schema.fields, *self.fields)}
        null = frozenset(dialect.null)
        self._parsers = {name: field_parser(feed.name, f, null) for name, f in declared.items()}

    def blocks(self, path: Path, part: FilePart = WHOLE) -> Iterator[Block]:
        before = BlockPosition(begin=partial(self._count, path, part.start) if part.start else None)
        with self._open(path) as file:
            first = self._first_line(file)
            if not self._dialect.is_header(first):
                yield self._records(
                    path, before, chain([first], line_blocks(file, WHOLE, self.max_value_bytes))
                )
                return
            header = self._header(path, next(self._dialect.reader([first])))
            is_data = not (self._dialect.header or part.start)
            before.line = 0 if part.start or is_data else 1
            lines = first if is_data else b""
            blocks = line_blocks(file, part, self.max_value_bytes)
            for more in blocks:
                lines += more
                whole = self._dialect.quoting(lines)
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

    def parts(self, path: Path, size: int) -> list[FilePart]:
        form = self._dialect
        if not form.is_utf8:
            return [WHOLE]
        with self._open(path) as file:
            divisible = form.is_header(file.readline()) and all(map(form.is_plain, line_blocks(file)))
        return line_parts(path, size) if divisible else [WHOLE]

    def _first_line(self, file: Any) -> bytes:
        """Read the first line. Raises `OSError` if it has more than `max_value_bytes`."""
        limit = self.max_value_bytes
        first: bytes = file.readline(-1 if limit is None else limit + 1)
        if limit is not None and len(first) > limit:
            raise OSError(f"a line has more than max_value_bytes={limit:,}")
        return first

    def _open(self, path: Path) -> Any:
        return self._dialect.in_utf8(open_bytes(path))

    def _records(
        self, path: Path, before: BlockPosition, blocks: Iterable[bytes], header: _Header | None = None
    ) -> Iterator[Record]:
        """Read records one by one, after the header if it is not known yet."""
        records = self._dialect.records(blocks)
        if header is None:
            first = next(records, None)
            if first is None:
                if not self._dialect.header:
                    return
                raise unreadable(self.feed.name, path, "it is empty, without even a header")
            line, names = first
            if isinstance(names, Malformed):
                raise self._not_csv(path, line, names)
            header = self._header(path, names)
            if not self._dialect.header:
                records = chain([first], records)
        for line, record in records:
            before.row += 1
            if not isinstance(record, Malformed):
                yield self._record(path, before.row, before.line + line, record, header)
            elif record.is_whole:
                reason = f"it is not CSV: {record.problem}"
                at = before.line + line
                yield self._bad_record(path, before.row, at, reason, record.line, is_malformed=True)
            else:
                raise self._not_csv(path, before.line + line, record)

    def _not_csv(self, path: Path, line: int, found: Malformed) -> UnreadableSource:
        why, fix = f"line {line} is not CSV: {found.problem}", ""
        if not found.is_whole:
            why += "\nIts quotes don't tell where the next row begins, so the rest of the file is not read."
            fix = f"close the quotes; {_NO_QUOTES}" if self._dialect.quote else ""
        return unreadable(self.feed.name, path, why, fix)

    def _record(self, path: Path, row: int, line: int, fields: list[str], header: _Header) -> Record:
        try:
            if len(fields) != header.width:
                first = "the header" if self._dialect.header else "the first row"
                raise UnfitValue(f"{first} has {header.width} columns, the row {len(fields)}")
            return header.row_of(fields)
        except UnfitValue as problem:
            return self._bad_record(path, row, line, str(problem), self._dialect.sep.join(fields))

    def _bad_record(
        self, path: Path, row: int, line: int, reason: str, text: str, *, is_malformed: bool = False
    ) -> BadRecord:
        fix = self._other_encoding(text)
        if is_malformed and self._dialect.quote and self._dialect.quote in text:
            fix = fix or _NO_QUOTES
        text = shortened(text.encode(errors="surrogateescape").decode(errors="replace"), 200)
        return BadRecord(str(path), row, reason, text, line, fix)

    def _count(self, path: Path, stop: int) -> tuple[int, int]:
        """Count the rows and lines before a part."""
        with self._open(path) as file:
            rows = lines = 0
            for block in line_blocks(file, FilePart(0, stop)):
                rows += sum(1 for _ in self._dialect.records([block]))
                lines += _count_lines(block)
            return rows - self._dialect.header, lines

    def _header(self, path: Path, first: list[str]) -> _Header:
        """Match the first record with the fields. Raises `UnreadableSource` if a column is missing."""
        names = first if self._dialect.header else self._declared_names(path, first)
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
        return _Header(self._dialect, len(names), self.fields, list(positions.values()), row_of)

    def _declared_names(self, path: Path, first: list[str]) -> list[str]:
        """Name the columns of a file without a header."""
        names = [*self.feed.schema.names, *([] if self.feed.append else [WEIGHT])]
        if len(first) not in {len(names), len(self.feed.schema.names)}:
            text = self._dialect.sep.join(first)
            raise unreadable(
                self.feed.name,
                path,
                f"{len(self.feed.schema.names)} columns are declared, its first row has {len(first)}: "
                f"{shortened(text, 200)}",
                self._other_encoding(text)
                or self._other_sep(text)
                or "without a header, columns are found by their position: declare all of them, in order",
            )
        return names[: len(first)]

    def _other_sep(self, text: str) -> str:
        """Return the suggested fix if another separator divides this text; "" if none does."""
        sep = self._dialect.likely_sep(text)
        if sep is None:
            return ""
        shown = {"\t": r"\t"}.get(sep, sep)
        return f"fields seem to end with {shown!r}: CsvFiles(..., sep={sep!r}), or csv:PATH?sep={shown}"

    def _other_encoding(self, text: str) -> str:
        """Return the suggested fix for a text that is not in the dialect's encoding; "" if it is."""
        encoding = self._dialect.likely_encoding(text)
        if encoding is None:
            return ""
        return (
            f"if the file is in another encoding, say which: CsvFiles(..., encoding={encoding!r}), "
            f"or csv:PATH?encoding={encoding}"
        )

    def _position(self, path: Path, header: list[str], declared: Field) -> int | None:
        count = header.count(declared.name)
        if count == 1:
            return header.index(declared.name)
        if count == 0 and declared.nullable:
            for missed in near_miss(self.feed.name, declared, self.declared, header, str(path)):
                self.widened.setdefault(missed.column, missed)
            return None
        problem = "no column" if count == 0 else f"{count} columns"
        text = self._dialect.sep.join(header)
        near = nearest(declared.name, header) if count == 0 else None
        correct = (
            "correct the header" if near is None else f"rename {near!r} to {declared.name!r} in the header"
        )
        raise unreadable(
            self.feed.name,
            path,
            f"its header has {problem} {declared.name!r}: {printable(shortened(text, 200))}",
            self._other_encoding(text)
            or self._other_sep(text)
            or f"{correct}, or declare the column `| None` if it may be missing",
        )


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
            except UnfitValue as problem:
                raise UnfitValue(f"{name}: {problem}") from None
        return tuple(out)

    return row


def field_parser(source: str, declared: Field, null: frozenset[str]) -> FromText:
    """Build a parser from field text to internal values. Raises `BadInput` for types without a CSV form."""
    try:
        from_text = parser_of(declared.type)
    except TypeError:
        raise BadInput(
            f"source {source!r}: column {declared.name!r} is {with_article(declared.type)}, "
            "which a CSV file cannot hold",
            fix="use JSON or Parquet, or read the column as str and parse it in the flow",
            source=source,
            column=declared.name,
        ) from None
    if declared.nullable:
        return lambda text: from_text(text) if text and text not in null else None
    may_be_empty = isinstance(declared.type, StrType | BytesType)
    if may_be_empty and not null:
        return from_text

    def needed(text: str) -> Any:
        if text in null:
            raise UnfitValue(f"{text!r} is null, but {declared.type} is declared without null")
        if not text and not may_be_empty:
            raise UnfitValue(f"it is empty, but {declared.type} is declared without null")
        return from_text(text)

    return needed


@open_format.register
def _(source: CsvFiles, feed: Feed) -> FileFormat:
    refuse_untyped(feed.schema, f"source {feed.name!r}, CSV files")
    return CsvFormat(feed, source.dialect, source.max_value_bytes)
