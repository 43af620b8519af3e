"""Rows of a table's versions, read for people: page by page, searched, compared, and found again.

All of it is read from Parquet files in batches, without Spark. Values are shown as texts, and a search looks
at these texts, so that it finds what is seen. A run at work may remove a version while it is read.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.errors import UnreadableSource
from headrace.pipelines.catalog import PipelineCatalog, TableEntry
from headrace.pipelines.definitions import SHARED, TableName
from headrace.pipelines.in_process_inputs import arrow_columns, partition_of
from headrace.pipelines.table_diff import FIX_OF_DIFF, sorted_changes, value_text
from headrace.pipelines.table_files import (
    LIMIT,
    ReadLimit,
    partition_columns,
    read_changes_file,
    read_data_file,
    rows_of_part,
    weighted_files,
)
from headrace.pipelines.weighted_rows import WEIGHT, as_changes, comparable_schema, consolidate_arrow
from headrace.tables.version_folders import data_files

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_compute: Any = pc

PAGE_ROWS = 100
MAX_TEXT = 2_000
"""Characters of a value that are shown."""
MAX_ANSWER = 2_000_000
"""Characters of a page. It has fewer rows then."""
SEARCH_SECONDS = 8.0
"""Seconds after which a search ends, with what it has found."""
_BATCH_BYTES, _BATCH_ROWS = 1 << 24, 8_192


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row as texts. weight: of a change. whole: whether no text was shortened."""

    values: tuple[str | None, ...]
    weight: int | None = None
    whole: bool = True


@dataclass(frozen=True, slots=True)
class RowPage:
    """Page of rows.

    more: whether there may be further ones. following: offset of the next page.
    searched: rows that were looked at; None if a search has looked at all.
    """

    rows: Sequence[ShownRow]
    more: bool
    following: int
    searched: int | None = None


# --- values as texts ------------------------------------------------------------------------------


def text_of(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Return the values of a column as texts, nulls as they are."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return text_of(column.cast(kind.value_type))
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        # In UTC; that of a zone takes Arrow twenty times as long.
        moments = column.cast(pa.timestamp(kind.unit)).cast(pa.string())
        return _compute.binary_join_element_wise(moments, "Z", "")
    if not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
        try:
            return column.cast(pa.string())
        except pa.ArrowNotImplementedError:
            pass
    texts = (None if value is None else value_text(value) for value in column.to_pylist())
    return pa.array(texts, pa.string())


def _cut(texts: Any) -> list[str | None]:
    """Return texts that are not much longer than what is shown of them."""
    return _compute.utf8_slice_codeunits(texts, 0, MAX_TEXT + 1).to_pylist()


@dataclass(slots=True)
class _Pager:
    """Collector of one page from batches of rows. names: of the columns; a weight is not one of them."""

    names: Sequence[str]
    search: str
    offset: int
    most: int = PAGE_ROWS
    rows: list[ShownRow] = field(default_factory=list[ShownRow])
    passed: int = 0
    size: int = 0

    def page(self, batches: Iterable[pa.RecordBatch | pa.Table]) -> RowPage:
        searched, until = 0, time.monotonic() + SEARCH_SECONDS
        for batch in batches:
            if self._is_full or (self.search and time.monotonic() > until):
                following = self.offset + len(self.rows)
                return RowPage(self.rows, True, following, None if self._is_full else searched)
            self._take(batch)
            searched += len(batch)
        more = self.passed > self.offset + len(self.rows)
        return RowPage(self.rows, more, self.offset + len(self.rows))

    @property
    def _is_full(self) -> bool:
        return len(self.rows) >= self.most or self.size >= MAX_ANSWER

    def _take(self, batch: pa.RecordBatch | pa.Table) -> None:
        if self.search:
            batch = batch.filter(
                _matching([batch.column(name) for name in self.names], self.search, len(batch))
            )
        skipped = min(len(batch), max(0, self.offset - self.passed))
        self.passed += len(batch)
        part = batch.slice(skipped, self.most - len(self.rows))
        shown = [_cut(text_of(part.column(name))) for name in self.names]
        weights = part.column(WEIGHT).to_pylist() if WEIGHT in part.schema.names else [None] * len(part)
        for values, weight in zip(zip(*shown, strict=True), weights, strict=True):
            if self._is_full:
                return
            self._add(values, weight)

    def _add(self, values: Sequence[str | None], weight: int | None) -> None:
        cut = tuple(v if v is None or len(v) <= MAX_TEXT else f"{v[:MAX_TEXT]}…" for v in values)
        self.size += sum(len(value or "") for value in cut)
        self.rows.append(ShownRow(cut, weight, cut == tuple(values)))


def _matching(columns: Sequence[Any], search: str, count: int) -> Any:
    """Return a mask of the rows of which a text contains another one, in any case."""
    found = pa.array([False]).take(pa.array([0] * count, pa.int64()))
    small = search.lower()
    for column in columns:
        letters = _letters(column.type)
        if letters is None or letters.issuperset(small):
            # Texts of one case are found several times as fast; that of a zone is another.
            any_case = letters is None or "z" in small
            there = _compute.match_substring(
                text_of(column), pattern=search if letters is None else small, ignore_case=any_case
            )
            found = _compute.or_(found, _compute.fill_null(there, False))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _letters(kind: pa.DataType) -> frozenset[str] | None:
    """Return the characters, in lower case, that texts of a type consist of; None for any."""
    if pa.types.is_integer(kind):
        return frozenset("-0123456789")
    if pa.types.is_floating(kind):
        return frozenset("-+0123456789.einfa")
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return frozenset("-+0123456789:. z")
    return None


# --- versions -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StoredVersion:
    """A version of a table in a storage, as its entry in a catalogue describes it.

    limit: on what is read as a whole: changes, and a shared part some of whose files take back rows of
    others. Beyond it, methods raise `PipelineError`.

    Its methods raise `UnreadableSource` for files that are not there, or cannot be read.
    """

    storage: Path
    name: TableName
    entry: TableEntry
    limit: ReadLimit = LIMIT

    @cached_property
    def schema(self) -> StructType:
        from pyspark.sql.types import StructType

        return StructType.fromJson(json.loads(self.entry.schema))

    @property
    def columns(self) -> list[str]:
        return self.schema.names

    @property
    def numbers(self) -> list[bool]:
        """Whether each column is numeric."""
        from pyspark.sql.types import NumericType

        return [isinstance(each.dataType, NumericType) for each in self.schema.fields]

    @property
    def partitioned_by(self) -> list[str]:
        return partition_columns(self.entry.layout)

    def folder(self, version: int | None = None) -> Path:
        """Folder of this version, or of another one of the table."""
        rows = PipelineCatalog.rows_in(self.storage, self.name)
        return rows.folder(self.entry.version if version is None else version)

    def page(self, search: str, offset: int) -> RowPage:
        """Return a page of the rows of which a value contains a text."""
        with reading(self.name):
            pager = _Pager(self.columns, search, offset)
            files = self._files()
            if self.name.database == SHARED and weighted_files(files):
                self.limit.check(files, "the rows of this shared part", "look at the tables that have it")
                rows = rows_of_part(files, arrow_columns(self.schema))
                return pager.page(rows.to_batches(_BATCH_ROWS))
            skip = None if search else pager
            return pager.page(batch for file in files for batch in self._batches(file, skip))

    def _batches(self, file: Path, skip: _Pager | None = None) -> Iterator[pa.Table]:
        """Yield the rows of a file in batches. skip: passes over row groups that come before its offset."""
        opened, parts = pq.ParquetFile(file), partition_of(self.folder(), file)
        for group in range(opened.num_row_groups):
            count = opened.metadata.row_group(group).num_rows
            if skip is not None and skip.passed + count <= skip.offset:
                skip.passed += count
                continue
            for batch in opened.iter_batches(_batch_rows(opened, group), row_groups=[group]):
                yield _with_columns(batch, self.columns, parts)

    def _files(self) -> list[Path]:
        if not self.entry.layout.startswith("parquet"):
            raise UnreadableSource(
                f"{self.name} is stored as {self.entry.layout.partition(' ')[0]}",
                fix="only tables of Parquet files can be looked at without Spark",
                source=str(self.name),
            )
        files = sorted(data_files(self.folder()))
        if not files and self.entry.rows:
            raise version_is_gone(self.name, self.entry.version)
        return files

    def find(self, wanted: Mapping[str, str | None]) -> pa.Table | None:
        """Return the first row that has these texts in some of its columns, with its types; None without one.

        Raises `NeedsSpark` for columns that Arrow cannot hold as Spark does.
        """
        with reading(self.name):
            for file in self._files():
                passed = 0
                for batch in self._batches(file):
                    texts = [text_of(batch.column(name)) for name in wanted]
                    at = _compute.index(_equal(texts, list(wanted.values()), len(batch)), True).as_py()
                    if at >= 0:
                        columns = arrow_columns(self.schema)
                        whole = read_data_file(self.folder(), file, columns, self.partitioned_by)
                        return whole.slice(passed + at, 1)
                    passed += len(batch)
        return None

    def kept_changes(self, before: int) -> Any | None:
        """Return the weighted changes from an earlier version to this one, as a table; None if they are gone.

        They are gone once all that read the table have read them, and no rollback has any.
        """
        columns = comparable_schema(self.schema)
        kept = PipelineCatalog.changes_in(self.storage, self.name)
        folders = [kept.folder(at) for at in range(before + 1, self.entry.version + 1)]
        if columns is None or not folders or not all(map(Path.is_dir, folders)):
            return None
        with reading(self.name):
            files = [file for folder in folders for file in data_files(folder)]
            self.limit.check(files, "the changes of the run", FIX_OF_DIFF)
            made = [read_changes_file(file, columns) for file in files]
            whole = pa.concat_tables([as_changes(columns.empty_table()), *made])
        return sorted_changes(consolidate_arrow(whole))


def is_number(kind: Any) -> bool:
    """Return whether a type of Arrow is numeric."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def page_of(changes: Any, search: str, offset: int) -> RowPage:
    """Return a page of weighted changes, removed rows beside added ones."""
    names = [name for name in changes.column_names if name != WEIGHT]
    return _Pager(names, search, offset).page(changes.to_batches(_BATCH_ROWS))


def version_is_gone(name: TableName, version: int) -> UnreadableSource:
    return UnreadableSource(
        f"version {version} of {name} is no longer kept",
        why="A run removes the versions before the last one, except those that readers or deliveries need.",
        fix="look at the last run's changes",
        source=str(name),
    )


@contextmanager
def reading(name: TableName) -> Iterator[None]:
    """Raise `UnreadableSource` in the block for files that are gone or damaged."""
    try:
        yield
    except (OSError, ValueError, pa.ArrowException) as error:
        raise UnreadableSource(
            f"the rows of {name} cannot be read",
            why=f"{error}. A run may have removed them meanwhile.",
            fix="ask again; if it stays so, restore the storage or recompute the table",
            source=str(name),
        ) from None


def _batch_rows(file: pq.ParquetFile, group: int) -> int:
    """Return the rows of a batch that take little memory, also of a table of huge values."""
    found = file.metadata.row_group(group)
    each = max(1, found.total_byte_size // max(1, found.num_rows))
    return max(1, min(_BATCH_ROWS, _BATCH_BYTES // each))


def _with_columns(batch: pa.RecordBatch, names: Sequence[str], parts: Mapping[str, str | None]) -> pa.Table:
    """Return the named columns of a batch: those of partitions as texts, and nulls for new ones."""
    there = {name.lower(): name for name in batch.schema.names}
    columns: list[Any] = []
    for name in names:
        if name in parts:
            columns.append(pa.array([parts[name]], pa.string()).take(pa.array([0] * len(batch), pa.int64())))
        elif name.lower() in there:
            columns.append(batch.column(there[name.lower()]))
        else:
            columns.append(pa.nulls(len(batch), pa.string()))
    return pa.Table.from_arrays(columns, list(names))


def _equal(columns: Sequence[Any], values: Sequence[str | None], count: int) -> Any:
    found = pa.array([True]).take(pa.array([0] * count, pa.int64()))
    for column, value in zip(columns, values, strict=True):
        same = _compute.is_null(column) if value is None else _compute.equal(column, value)
        found = _compute.and_(found, _compute.fill_null(same, False))
    return found


__all__ = ["RowPage", "ShownRow", "StoredVersion", "is_number", "page_of", "text_of"]
