"""Few changes of a table, and small tables, written in this process: a job of Spark costs more than they do.

What is written is what Spark would write: `versions` has the same steps for many rows, and for columns that
Arrow cannot group.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.io.source import WEIGHT as SINK_WEIGHT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

FEW = 20_000
"""Rows up to which they are read into this process."""


def arrow_schema(schema: StructType) -> pa.Schema | None:
    """Return the columns of a table in Arrow; None if some cannot be compared here."""
    import pyarrow.types as kinds
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    try:
        made: Any = to_arrow_schema(schema, timezone="UTC")
    except (PySparkException, ValueError, TypeError):
        return None
    plain = all(not kinds.is_nested(field.type) and not kinds.is_floating(field.type) for field in made)
    collated = any("collate" in field.dataType.simpleString() for field in schema.fields)
    return made if plain and not collated else None


def changes_of_ticks(ticks: Iterable[Path], columns: pa.Schema, weight: str) -> pa.Table:
    """Return what ticks of a changelog come to, with a column `weight`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.ParquetFile(file).read() for folder in ticks for file in folder.glob("*.parquet")]
    typed = [
        pa.table(
            [table[name].cast(columns.field(name).type) for name in columns.names] + [table[SINK_WEIGHT]],
            names=[*columns.names, weight],
        )
        for table in tables
    ]
    return summed_up(pa.concat_tables(typed), weight)


def summed_up(changes: pa.Table, weight: str) -> pa.Table:
    """Return each row once, with the sum of its weights, where that is not 0."""
    import pyarrow.compute as pc

    compute: Any = pc
    names = [name for name in changes.column_names if name != weight]
    whole = changes.group_by(names).aggregate([(weight, "sum")]).rename_columns([*names, weight])
    return whole.filter(compute.not_equal(whole[weight], 0))


def rows_of(changes: pa.Table, weight: str) -> pa.Table | None:
    """Return each row as often as its weight says; None if a weight is negative."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc
    weights = changes[weight]
    if len(weights) and compute.min(weights).as_py() < 0:
        return None
    copies = [at for at, count in enumerate(weights.to_pylist()) for _ in range(count)]
    return changes.drop_columns([weight]).take(pa.array(copies, pa.int64()))


def with_rows(changes: pa.Table, folder: Path, columns: pa.Schema, weight: str) -> pa.Table:
    """Return changes together with the rows of a version, as changes from nothing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(folder.glob("*.parquet"))
    held = [pq.ParquetFile(file).read().select(columns.names).cast(columns) for file in files]
    rows = pa.concat_tables([columns.empty_table(), *held])
    before = rows.append_column(weight, pa.array([1] * len(rows), pa.int64()))
    return summed_up(pa.concat_tables([before, changes.cast(before.schema)]), weight)
