"""File reader for a source: one file after another, in batches, from any position."""

from __future__ import annotations

import logging
import sys
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import singledispatch
from itertools import chain, islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from headrace.errors import UnreadableSource
from headrace.expr.types import INT64, Field, Schema, StructType
from headrace.io.files.file_source import WHOLE, FilePart, Files, Listing, PendingFile, PendingFiles
from headrace.io.files.text_values import UnfitValue
from headrace.io.source import DONE, WEIGHT, BadRecord, Batch, Feed, Reader, open_source, printable

if TYPE_CHECKING:
    import pyarrow as pa


# --- columns that are narrower than declared, or missing ------------------------------------------

# Values are widened, or null, with one warning per column. Widening never changes a value: an integer beyond
# 2**53 is no float64, and its row is unreadable.


log = logging.getLogger("headrace.files")


@dataclass(frozen=True, slots=True)
class ColumnMismatch:
    """A column of a file that is widened. found: its type in the file.

    near: a column of the file whose name differs by case or blanks alone, if this one is missing and null.
    """

    source: str
    column: str
    found: str
    declared: str
    file: str
    near: str = ""

    def __str__(self) -> str:
        if self.near:
            return (
                f"source {self.source!r}: column {self.column!r} is missing in {printable(self.file)}, "
                f"and null; the file has {printable(repr(self.near))}; later files are not reported"
            )
        return (
            f"source {self.source!r}: column {self.column!r} is {self.found} in {printable(self.file)}, "
            f"and was widened to {self.declared}; later files are not reported"
        )


def near_miss(
    source: str, missing: Field, declared: Collection[str], there: Iterable[str], file: str, within: str = ""
) -> Iterator[ColumnMismatch]:
    """Yield a missing column if the file has a column with a name differing only in case or blanks.

    declared: the names of all columns; a declared one is no misspelt one. within: prefix of the column's
    name, if it is a field of others.
    """
    name = _folded(missing.name)
    near = next((each for each in there if each not in declared and _folded(each) == name), None)
    if near is not None:
        yield ColumnMismatch(source, f"{within}{missing.name}", "", str(missing.type), file, near)


def near_misses(
    source: str,
    fields: Iterable[Field],
    declared: Collection[str],
    found: object,
    file: str,
    within: str = "",
) -> Iterator[ColumnMismatch]:
    """Yield nullable fields missing from a JSON object, or in one of its fields; see `near_miss`."""
    if not isinstance(found, dict):
        return
    there = cast("dict[str, object]", found)
    for each in fields:
        if each.name not in there:
            if each.nullable:
                yield from near_miss(source, each, declared, there, file, within)
        elif isinstance(each.type, StructType):
            inner = each.type.fields
            names = {f.name for f in inner}
            yield from near_misses(source, inner, names, there[each.name], file, f"{within}{each.name}.")


def _folded(name: str) -> str:
    return "".join(name.casefold().split()).strip("\ufeff")


@dataclass(slots=True)
class WideningLog:
    """Warnings of a run, one per source and column."""

    _warned: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def warn(self, found: Iterable[ColumnMismatch]) -> None:
        # Tasks report in any order.
        for each in sorted(found, key=lambda widened: (widened.source, widened.file, widened.column)):
            key = each.source, each.column
            if key not in self._warned:
                self._warned.add(key)
                log.warning("%s", each)


Record: TypeAlias = "tuple[Any, ...] | list[tuple[Any, ...]] | BadRecord"
"""Result of reading a record: a row, the rows of a change data record, or why it is unreadable."""

Block: TypeAlias = "pa.Table | Iterator[Record]"
"""Records in order: columns, where all are certain to be as declared, or else one after another.

A table has the live fields, and the weight of a table source."""

_WORTH_COLUMNS = 1 << 15
"""Bytes from which columns are faster than rows."""
_TOO_LONG = 1 << 26
"""Bytes that are no longer left to pyarrow, which counts in 32 bits; only a very long line makes so many."""
_WORTH_AN_IMPORT = 1 << 24
"""Bytes that make up for the import of pyarrow, 0.1 seconds."""
_PATIENCE = 8
"""Blocks that are tried though all were refused; then one in as many is."""


class FileFormat(ABC):
    """File format bound to one feed.

    fields: those that are read, with the weight of a table source. declared: the names of all fields, also of
    those that are not read. max_value_bytes: see `Files`.
    """

    def __init__(self, feed: Feed, max_value_bytes: int | None = None) -> None:
        feed.refuse_weight_column()
        self.feed = feed
        self.max_value_bytes = max_value_bytes
        weight = [] if feed.append else [Field(WEIGHT, INT64, nullable=True)]
        self.fields = [*feed.live_fields, *weight]
        self.declared = frozenset({*feed.schema.names, *(f.name for f in self.fields)})
        self.widened: dict[str, ColumnMismatch] = {}
        """Columns of the files read so far that are narrower than declared."""
        self._bytes_read = self._refused = 0

    @abstractmethod
    def blocks(self, path: Path, part: FilePart = WHOLE) -> Iterator[Block]:
        """Yield the records of a part of a file. Consume a block's records before taking the next block.

        Raises `UnreadableSource` for a file of another format; errors that `reported` turns into it pass.
        """

    @abstractmethod
    def parts(self, path: Path, size: int) -> list[FilePart]:
        """Divide a file into parts of about `size` bytes, each of which `blocks` can read by itself."""

    def count(self, path: Path, part: FilePart = WHOLE) -> int | None:
        """Return the number of records in a part of a file, or None if counting requires reading it.

        Raises like `blocks`.
        """
        return None

    def worth_columns(self, lines: bytes) -> bool:
        """Check whether parsing lines with pyarrow is expected to be faster."""
        self._bytes_read += len(lines)
        if not _WORTH_COLUMNS <= len(lines) < _TOO_LONG:
            return False
        self._refused += 1  # until it is parsed
        if self._refused > _PATIENCE and self._refused % _PATIENCE:
            return False
        return self._bytes_read >= _WORTH_AN_IMPORT or "pyarrow" in sys.modules

    def parsed(self, lines: bytes, parse: Callable[[], pa.Table | None]) -> tuple[Block, int] | None:
        """Parse lines as columns if that is faster; return their block and number of records.

        None if they are to be read one by one.
        """
        table = parse() if self.worth_columns(lines) else None
        block = self.block_of(table)
        if table is None or block is None:
            return None
        self._refused = 0
        return block, table.num_rows

    def block_of(self, table: pa.Table | None) -> Block | None:
        """Build a block from columns of `fields`, or return None if a record in them is unreadable."""
        if table is None or (self.feed.append and self.feed.decode is None):
            return table
        if self.feed.decode is not None:
            try:
                return iter([self.feed.decode(row) for row in rows_of(table, self.feed)])
            except UnfitValue:
                return None
        from headrace.io.arrow import known_weights

        return known_weights(table)


@singledispatch
def open_format(source: Files, feed: Feed) -> FileFormat:
    """Bind the format of a source of files to a feed. Raises `BadInput` for columns it cannot represent."""
    raise NotImplementedError(type(source))


def records_of(block: Block, feed: Feed) -> Iterable[Record]:
    return block if isinstance(block, Iterator) else rows_of(block, feed)


def rows_of(table: pa.Table, feed: Feed) -> Iterable[tuple[Any, ...]]:
    """Convert the table of a block to rows, in which columns that are not live are None."""
    from headrace.io.arrow import column_to_values

    live = {f.name for f in feed.live_fields}
    columns: list[Iterable[Any]] = [
        column_to_values(table.column(f.name), f.type) if f.name in live else repeat(None)
        for f in feed.schema.fields
    ]
    if not feed.append:
        columns.append(table.column(WEIGHT).to_pylist())
    return zip(*columns)


def add_records(batch: Batch, records: Iterable[Record], feed: Feed, *, set_aside: bool) -> int:
    """Move records to a batch, and count them. Raises `BadRow` for an unreadable one unless `set_aside`."""
    count = 0
    for record in records:
        count += 1
        if type(record) is tuple:
            batch.rows.append(record)
        elif type(record) is list:
            batch.rows.extend(record)
        elif set_aside:
            batch.bad.append(record)  # type: ignore[arg-type]
        else:
            raise record.error(feed.name)  # type: ignore[union-attr]
    return count


def read_rows(file_format: FileFormat, path: Path, part: FilePart = WHOLE, *, set_aside: bool) -> Batch:
    """Read a part of a file into rows.

    set_aside: return unreadable rows; otherwise they raise `BadRow`. Raises `UnreadableSource`.
    """
    feed, batch = file_format.feed, Batch([])
    with reported(feed.name, path):
        for block in file_format.blocks(path, part):
            add_records(batch, records_of(block, feed), feed, set_aside=set_aside)
    return batch


def read_columns(
    file_format: FileFormat, path: Path, part: FilePart = WHOLE, *, set_aside: bool
) -> tuple[pa.Table, list[BadRecord]]:
    """Read a part of a file into columns of the live fields and the weight, like `read_rows`."""
    import pyarrow as pa

    from headrace.io.arrow import arrow_schema, rows_to_table

    feed, weighted = file_format.feed, not file_format.feed.append
    live = Schema(tuple(feed.live_fields))
    positions = [feed.schema.names.index(name) for name in live.names] + [-1] * weighted
    tables = [arrow_schema(live, weighted=weighted).empty_table()]
    bad: list[BadRecord] = []
    with reported(feed.name, path):
        for block in file_format.blocks(path, part):
            if isinstance(block, Iterator):
                batch = Batch([], bad)
                add_records(batch, block, feed, set_aside=set_aside)
                rows = [tuple(row[at] for at in positions) for row in batch.rows]
                block = rows_to_table(rows, live, weighted=weighted)
            tables.append(block)
    return pa.concat_tables(tables), bad


class FilesReader(Reader):
    """Reader of files in name order; a tick may end within a file.

    With `files_per_tick`, a tick takes that many whole files, regardless of the row limit. With
    `dead_letter`, unreadable rows are returned to the caller instead of ending the run.

    A position within a file always has a record after it. So the records before it end where a writer ended
    them, and a file that grows keeps them; the last record of a file may be unfinished.
    """

    def __init__(
        self,
        listing: Listing,
        file_format: FileFormat,
        source: Files,
    ) -> None:
        self._files = PendingFiles(listing, file_format.feed.taken)
        self._format = file_format
        self._feed = file_format.feed
        self._files_per_tick = source.files_per_tick
        self._set_aside = source.dead_letter is not None
        self._log = WideningLog()
        self._waiting = deque(self._files.look(may_be_none=self._feed.follow or self._feed.resumed))
        self._blocks: Iterator[Block] = iter(())
        self._open: Iterator[Record] | None = None
        self._ahead: list[Record] = []  # of the open file: the record after those taken
        self._file: PendingFile
        self._rows_taken = 0

    def read(self, limit: int | None) -> Batch | None:
        batch = Batch([])
        room = None if self._files_per_tick else limit
        files_left = self._files_per_tick or -1
        while (room is None or room > 0) and files_left != 0 and self._next_file():
            count, ended = self._take(batch, room)
            if not batch.rows and not batch.bad:
                continue  # An empty file, or records without rows, makes no tick.
            if room is not None:
                room -= count
            if ended:
                files_left -= 1
        return batch if batch.rows or batch.bad else None

    def _next_file(self) -> bool:
        """Open the next file if none is open. Returns False if no file is available."""
        if self._open is not None:
            return True
        if not self._waiting and self._feed.follow:
            self._waiting.extend(self._files.look(may_be_none=True))
        if not self._waiting:
            self.done = not self._feed.follow
            return False
        self._file = self._waiting.popleft().now()
        self._rows_taken = self._file.rows
        self._blocks = self._format.blocks(Path(self._file.path))
        records = chain.from_iterable(records_of(block, self._feed) for block in self._blocks)
        if self._feed.joined is not None:
            records = self._feed.joined(records, self._file.path)
        self._open = self._unread(records)
        return True

    def _unread(self, records: Iterator[Record]) -> Iterator[Record]:
        """Skip the records that earlier ticks have read. Raises `InputChanged` if the file has fewer."""
        file = self._file
        there = sum(1 for _ in islice(records, file.rows))
        if there < file.rows:
            raise self._files.shrunk(file, there)
        yield from records

    def _take(self, batch: Batch, room: int | None) -> tuple[int, bool]:
        """Move up to `room` records of the open file to the batch. Returns the count, and whether the file
        ended.
        """
        assert self._open is not None
        ahead, self._ahead = self._ahead, []
        with reported(self._feed.name, Path(self._file.path)):
            records = islice(chain(ahead, self._open), room)
            if self._feed.placed:
                records = self._placed(records)
            count = add_records(batch, records, self._feed, set_aside=self._set_aside)
        ended = room is None or count < room or not self._look_ahead()
        self._log.warn(self._format.widened.values())
        self._rows_taken += count
        self._feed.taken[self._file.name] = self._file.position(DONE if ended else self._rows_taken)
        if ended:
            self._open = None
            self._files.finished(self._file)
        return count, ended

    def _look_ahead(self) -> bool:
        """Read the next record ahead. Returns whether there is one, or an error in its place."""
        assert self._open is not None
        try:
            self._ahead = [*islice(self._open, 1)]
        except Exception as error:
            # The rows before it make a tick; the next one fails.
            self._open = _failing(error)
            return True
        return bool(self._ahead)

    def _placed(self, records: Iterator[Record]) -> Iterator[Record]:
        """Append the path of the file and the record number to each row."""
        path = self._file.path
        for number, record in enumerate(records, self._rows_taken + 1):
            yield [(*row, (path, number)) for row in record] if isinstance(record, list) else record

    def close(self) -> None:
        super().close()
        self._open = None
        close = getattr(self._blocks, "close", None)
        if close is not None:
            close()  # a generator, which closes its file


def _failing(error: Exception) -> Iterator[Record]:
    """Return an iterator that raises an error instead of yielding its first record."""
    raise error
    yield


@open_source.register
def _(source: Files, feed: Feed) -> Reader:
    return FilesReader(Listing(feed.name, source.path, feed.skip), open_format(source, feed), source)


@contextmanager
def reported(source: str, path: Path) -> Iterator[None]:
    """Turn errors of reading a file into `UnreadableSource`."""
    try:
        yield
    except UnreadableSource:
        raise
    except (OSError, EOFError, UnicodeError, zlib.error) as error:
        raise unreadable(source, path, str(error)) from error


def unreadable(source: str, path: Path, why: str, fix: str = "") -> UnreadableSource:
    """Build the error for a file that cannot be read."""
    return UnreadableSource(
        f"source {source!r} cannot read {printable(path)}",
        why=why,
        fix=fix or "replace the file, or move it out of the source's folder",
        source=source,
        path=str(path),
        file=str(path),
    )
