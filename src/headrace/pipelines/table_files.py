"""Files of a table's version, read and written without Spark, in the form in which Spark has them.

Columns that a table is partitioned by are in the names of folders only: `month=2024-01`, escaped as by Hive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.pipelines.errors import NeedsSpark, PipelineError
from headrace.pipelines.in_process_inputs import NULL_PARTITION, columns_of_table, partition_of
from headrace.pipelines.weighted_rows import MAX_BYTES, WEIGHT, as_changes, consolidate_arrow, expand_arrow
from headrace.tables.version_folders import data_files, row_count

MAX_ROWS = 5_000_000
"""Rows of files up to which they are read for a page: of some tables, few bytes hold many."""

_ESCAPED = frozenset("\"#%'*/:=?\\{[]^\x7f" + "".join(map(chr, range(1, 32))))


def parts_of(rows: pa.Table, partitioned_by: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the folder of each partition with its rows, without the columns that the folder tells.

    Raises `NeedsSpark` for values whose text is a matter of Spark.
    """
    if not partitioned_by:
        yield "", rows
        return
    import polars as pl

    for name in partitioned_by:
        kind = rows.schema.field(name).type
        if not (pa.types.is_string(kind) or pa.types.is_integer(kind) or pa.types.is_date32(kind)):
            raise NeedsSpark(f"Spark writes partitions of {kind}")
    frame: Any = pl.from_arrow(rows)
    schema = pa.schema([field for field in rows.schema if field.name not in partitioned_by])
    for values, part in frame.partition_by(*partitioned_by, as_dict=True, include_key=False).items():
        names = zip(partitioned_by, values, strict=True)
        yield (
            "/".join(f"{_escaped(name)}={_text_of(value)}" for name, value in names),
            (part.to_arrow().select(schema.names).cast(schema)),
        )


def _text_of(value: Any) -> str:
    # A folder has no name for an empty text: Spark reads null.
    return NULL_PARTITION if value is None or value == "" else _escaped(str(value))


def _escaped(text: str) -> str:
    return "".join(f"%{ord(each):02X}" if each in _ESCAPED else each for each in text)


@dataclass(frozen=True, slots=True)
class ReadLimit:
    """Limit on files that are read into memory as a whole. rows: of Parquet files, which record them."""

    bytes: int = MAX_BYTES
    rows: int = MAX_ROWS

    def check(self, files: Sequence[Path], what: str, fix: str) -> None:
        """Raise `PipelineError` for files beyond the limit. what: names what is in them. Raises OSError."""
        size = sum(file.stat().st_size for file in files)
        rows = sum(row_count(file) for file in files if file.suffix == ".parquet")
        if size > self.bytes or rows > self.rows:
            raise PipelineError(
                f"{what} take {size:,} bytes of files with {rows:,} rows",
                why=f"Up to {self.bytes:,} bytes and {self.rows:,} rows are read into memory here.",
                fix=fix,
            )


LIMIT = ReadLimit()
"""Limit where a person waits for an answer."""


def partition_columns(layout: str) -> list[str]:
    """Return the columns by which a table's files are partitioned, from the layout in its entry.

    >>> partition_columns("parquet `city` `day of week`")
    ['city', 'day of week']
    """
    return [name.replace("``", "`") for name in re.findall(r"`((?:[^`]|``)*)`", layout)]


def read_data_file(
    folder: Path, file: Path, columns: pa.Schema, partitioned_by: Sequence[str], only: Sequence[str] = ()
) -> pa.Table:
    """Read a file of a version with the types of its table. only: some of the columns; empty for all.

    Raises `NeedsSpark` for a file that holds other types.
    """
    wanted = pa.schema([columns.field(name) for name in only]) if only else columns
    inside = [name for name in wanted.names if name not in partitioned_by]
    try:
        there = pq.ParquetFile(file)
        found = there.read([name for name in inside if name in there.schema_arrow.names])
    except (OSError, ValueError, pa.ArrowException) as error:
        raise NeedsSpark(f"{file} cannot be read: {error}") from None
    for name, value in partition_of(folder, file.parent).items():
        if name not in wanted.names:
            continue
        try:
            column = pa.array([value], pa.string()).cast(columns.field(name).type)
        except pa.ArrowException as error:
            raise NeedsSpark(f"{file} is in a partition that only Spark can read: {error}") from None
        found = found.append_column(name, pa.repeat(column[0], len(found)))
    return columns_of_table(str(file), found, wanted)


def weighted_files(files: Iterable[Path]) -> list[Path]:
    """Return those files of a version whose rows have weights: they may take back rows of others."""
    return [file for file in files if WEIGHT in pq.read_schema(file).names]


def rows_of_part(files: Sequence[Path], columns: pa.Schema) -> pa.Table:
    """Read the files of a shared part's version, which may hold rows that later ones take back.

    Raises `NeedsSpark` for a file that holds other types.
    """
    made = [read_changes_file(file, columns) for file in files]
    whole = consolidate_arrow(pa.concat_tables([as_changes(columns.empty_table()), *made]))
    return whole.drop_columns([WEIGHT]) if (rows := expand_arrow(whole)) is None else rows


def read_changes_file(file: Path, columns: pa.Schema) -> pa.Table:
    """Read a file of changes; rows without a weight came once. Raises `NeedsSpark`."""
    found = pq.ParquetFile(file).read()
    rows = columns_of_table(
        str(file), found.drop_columns([WEIGHT]) if WEIGHT in found.column_names else found, columns
    )
    if WEIGHT not in found.column_names:
        return as_changes(rows)
    weights: Any = found[WEIGHT].cast(pa.int64())
    return rows.append_column(WEIGHT, weights.fill_null(1))


def files_with_rows(
    folder: Path, rows: pa.Table, columns: pa.Schema, partitioned_by: Sequence[str]
) -> list[Path]:
    """Return the files of a version that may hold one of the rows.

    Columns that can be compared are looked at: in each file the one in which the rows differ most, and all
    of them where that has one of its values.
    """
    plain = [f.name for f in columns if not (pa.types.is_nested(f.type) or pa.types.is_floating(f.type))]
    probe = _probe(rows, [name for name in plain if name not in partitioned_by])
    if not plain:
        return data_files(folder)
    import polars as pl

    wanted: Any = pl.from_arrow(rows.select(plain))

    def holds_one(file: Path, names: list[str]) -> bool:
        there: Any = pl.from_arrow(read_data_file(folder, file, columns, partitioned_by, names))
        return len(there.join(wanted, on=names, how="semi", nulls_equal=True)) > 0

    return [
        file
        for file in data_files(folder)
        if (probe is None or holds_one(file, [probe])) and holds_one(file, plain)
    ]


def _probe(rows: pa.Table, plain: Sequence[str]) -> str | None:
    """Return the column with the most values in some rows; None if there is none."""
    counts = {name: rows[name].combine_chunks().unique() for name in plain}
    return max(plain, key=lambda name: len(counts[name]), default=None)
