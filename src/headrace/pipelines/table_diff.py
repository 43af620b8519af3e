"""Difference of a table between two runs: the rows that came and that went, read without Spark.

Versions of a table share the files that stay the same, so only the others are read, into memory. Rows are
compared by the values of all columns; a column that only one version has is null in the other. Values of
types that cannot be compared here, as maps, and columns whose type has changed are compared as text.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.pipelines.catalog import SINK, PipelineCatalog, PublishedRun, TableEntry
from headrace.pipelines.definitions import TableName
from headrace.pipelines.errors import BadDefinition, CatalogDamaged, NeedsSpark, UnknownDataset
from headrace.pipelines.in_process_inputs import partition_of
from headrace.pipelines.run_history import find_run, find_stored_table
from headrace.pipelines.table_files import ReadLimit, partition_columns, read_data_file
from headrace.pipelines.weighted_rows import WEIGHT, as_changes, comparable_schema, consolidate_arrow
from headrace.tables.version_folders import data_files

if TYPE_CHECKING:
    from headrace.pipelines.spec import PipelineSpec


FIX_OF_DIFF = "headrace pipeline diff TABLE --from RUN --to RUN"
"""Way out where a difference is too large for a page."""


@dataclass(frozen=True, slots=True)
class TableDiff:
    """Difference of a table between two runs.

    before, after: the runs whose tables are compared.
    versions: of the table in them, 0 where it is not there.
    changes: rows with their weights, sorted; those that came have a positive one.
    columns: names of columns that came, went, or have another type, with what became of each.
    """

    table: TableName
    before: int
    after: int
    versions: tuple[int, int]
    changes: pa.Table
    columns: Mapping[str, str]

    @property
    def inserted(self) -> int:
        return sum(each for each in self.changes[WEIGHT].to_pylist() if each > 0)

    @property
    def deleted(self) -> int:
        return -sum(each for each in self.changes[WEIGHT].to_pylist() if each < 0)

    def rows(self, limit: int | None = None) -> list[tuple[int, dict[str, Any]]]:
        """Return the first changes: the weight of each, and its row."""
        names = [name for name in self.changes.column_names if name != WEIGHT]
        some = self.changes if limit is None else self.changes.slice(0, limit)
        rows = some.select(names).to_pylist() if names else [{}] * len(some)
        return list(zip(some[WEIGHT].to_pylist(), rows, strict=True))


def diff_table(
    spec: PipelineSpec,
    table: str,
    *,
    before: int | None = None,
    after: int | None = None,
    limit: ReadLimit | None = None,
) -> TableDiff:
    """Compare a table after two runs. after: the last one by default; before: by default the one before that.

    limit: on the files that are read; None for any size.

    Raises `UnknownDataset`, `RunNotKept`, `BadDefinition` for a sink, `CatalogDamaged`, and the error of
    `limit`.
    """
    runs = PipelineCatalog.published_runs(spec.storage)
    name = find_stored_table(table, spec.database, _shown(runs))
    last = find_run(runs, runs[-1].number if after is None else after, spec.storage)
    if before is not None:
        first = find_run(runs, before, spec.storage)
    else:
        earlier = [run for run in runs if run.number < last.number]
        first = earlier[-1] if earlier else last
    entries = (first.tables.get(name), last.tables.get(name))
    if entries == (None, None):
        raise UnknownDataset(
            f"there was no table {name} after the runs {first.number} and {last.number}",
            fix="compare runs that have it: headrace pipeline runs",
            dataset=table,
        )
    if any(entry is not None and entry.layout == SINK for entry in entries):
        raise BadDefinition(
            f"{name} is a sink, whose rows are not kept",
            fix="compare the table that it reads",
            dataset=str(name),
        )
    folders = PipelineCatalog.rows_in(spec.storage, name)
    old, new = (entry and _Side(folders.folder(entry.version), entry) for entry in entries)
    changes, columns = _compared(old, new, limit)
    versions = (old.entry.version if old else 0, new.entry.version if new else 0)
    return TableDiff(name, first.number, last.number, versions, changes, columns)


def _shown(runs: Sequence[PublishedRun]) -> set[TableName]:
    return {name for run in runs for name in run.tables if not name.is_hidden}


# --- rows of two versions -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Side:
    """A version of a table: its folder of files, and what the catalogue says of it."""

    folder: Path
    entry: TableEntry

    def files(self) -> dict[tuple[str, int], Path]:
        """Return the files by what tells them apart: a name is given once, and what it names stays."""
        found = data_files(self.folder)
        if not self.folder.is_dir():
            raise _lost(self.folder)
        return {(str(file.relative_to(self.folder)), file.stat().st_size): file for file in found}

    @property
    def types(self) -> dict[str, str]:
        """Types of the columns, as Spark names them."""
        from pyspark.sql.types import StructType

        fields = StructType.fromJson(json.loads(self.entry.schema)).fields
        return {field.name: field.dataType.simpleString() for field in fields}

    @property
    def partitioned_by(self) -> list[str]:
        return partition_columns(self.entry.layout)

    def read(self, files: Iterable[Path]) -> pa.Table:
        """Read some files, as the table's types or, where that cannot be, as texts."""
        from pyspark.sql.types import StructType

        listed = sorted(files)
        columns = comparable_schema(StructType.fromJson(json.loads(self.entry.schema)))
        try:
            if columns is not None:
                tables = [read_data_file(self.folder, file, columns, self.partitioned_by) for file in listed]
                return pa.concat_tables([columns.empty_table(), *tables])
        except NeedsSpark:
            pass
        texts = pa.schema([(name, pa.string()) for name in self.types])
        return pa.concat_tables([texts.empty_table(), *(self._texts(file, texts) for file in listed)])

    def _texts(self, file: Path, columns: pa.Schema) -> pa.Table:
        try:
            found = _read_orc(file) if file.suffix == ".orc" else pq.ParquetFile(file).read()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise _lost(file, f"{error}.") from None
        parts = partition_of(self.folder, file)
        made: list[Any] = []
        for name in columns.names:
            if name in parts:
                made.append(pa.array([parts[name]] * len(found), pa.string()))
            elif name in found.column_names:
                made.append(_as_text(found[name]))
            else:
                made.append(pa.nulls(len(found), pa.string()))
        return pa.table(made, schema=columns)


def _read_orc(file: Path) -> pa.Table:
    from pyarrow import orc

    return orc.read_table(file)


def _lost(file: Path, why: str = "") -> CatalogDamaged:
    return CatalogDamaged(
        f"{file} cannot be read",
        why=why or "It is not there: a run that has ended meanwhile may have removed this version.",
        fix="compare later runs: headrace pipeline runs",
        file=str(file),
    )


def _as_text(column: Any) -> pa.Array:
    """Return values as texts that are equal if the values are."""
    return pa.array(
        [None if value is None else value_text(value) for value in column.to_pylist()], pa.string()
    )


def value_text(value: Any) -> str:
    """Return a value as text. Entries of maps are in order."""
    return value if isinstance(value, str) else json.dumps(plain(value), ensure_ascii=False, default=str)


def plain(value: Any) -> Any:
    """Return a value of Arrow as JSON has it, or can show it."""
    match value:
        case dict():
            return {str(key): plain(each) for key, each in value.items()}
        case list() if value and all(isinstance(each, tuple) and len(each) == 2 for each in value):
            entries = sorted(value, key=lambda entry: value_text(entry[0]))  # of a map
            return {value_text(key): plain(each) for key, each in entries}
        case list() | tuple():
            return [plain(each) for each in value]
        case bytes():
            return value.hex()
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case bool() | int() | float() | str() | None:
            return value
        case _:
            return str(value)


def _compared(
    before: _Side | None, after: _Side | None, limit: ReadLimit | None
) -> tuple[pa.Table, Mapping[str, str]]:
    """Return the weighted rows that differ, and the columns that do."""
    old_types, new_types = (side.types if side else {} for side in (before, after))
    columns = _columns_changed(old_types, new_types) if before and after else {}
    old, new = (side.files() if side else {} for side in (before, after))
    same = frozenset[Any]() if columns else old.keys() & new.keys()
    differing = [[path for key, path in files.items() if key not in same] for files in (old, new)]
    if limit is not None:
        listed = [file for files in differing for file in files]
        # A lost or damaged file is named where it is read. pyarrow's own errors are of these kinds.
        with suppress(OSError, ValueError):
            limit.check(listed, "the versions' differences", FIX_OF_DIFF)
    sides = [
        (side.read(files), weight)
        for side, files, weight in zip((before, after), differing, (-1, 1), strict=True)
        if side is not None
    ]
    names = [*(new_types or old_types), *(name for name in old_types if new_types and name not in new_types)]
    aligned = _aligned([rows for rows, _ in sides], names)
    weighted = [as_changes(rows, weight) for rows, (_, weight) in zip(aligned, sides, strict=True)]
    return sorted_changes(consolidate_arrow(pa.concat_tables(weighted))), columns


def _columns_changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    changed = {name: "is new" for name in after if name not in before}
    changed |= {name: "is gone" for name in before if name not in after}
    for name, kind in after.items():
        if name in before and before[name] != kind:
            changed[name] = f"was {before[name]}, is {kind}"
    return changed


def _aligned(tables: Sequence[pa.Table], names: Sequence[str]) -> list[pa.Table]:
    """Return tables with the same columns: null where one lacks a column, and texts where types differ."""
    fields: list[pa.Field] = []
    for name in names:
        kinds = [table.schema.field(name).type for table in tables if name in table.column_names]
        fields.append(pa.field(name, kinds[0] if all(kind == kinds[0] for kind in kinds) else pa.string()))
    wanted = pa.schema(fields)
    made: list[pa.Table] = []
    for table in tables:
        columns: list[Any] = []
        for field in wanted:
            if field.name not in table.column_names:
                columns.append(pa.nulls(len(table), field.type))
            elif table.schema.field(field.name).type == field.type:
                columns.append(table[field.name])
            else:
                columns.append(_as_text(table[field.name]))
        made.append(pa.table(columns, schema=wanted))
    return made


def sorted_changes(changes: pa.Table) -> pa.Table:
    """Sort changes by their columns, so that the old and the new row of a key are neighbours."""
    import polars as pl

    frame: Any = pl.from_arrow(changes)
    plain_columns = [
        field.name for field in changes.schema if not pa.types.is_nested(field.type) and field.name != WEIGHT
    ]
    order = frame.with_row_index("#").sort([*plain_columns, WEIGHT], maintain_order=True)["#"]
    return changes.take(order.to_arrow())
