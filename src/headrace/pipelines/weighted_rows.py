"""Weighted rows: changes of a table, as a DataFrame or an Arrow table with a column of multiplicities.

Few changes are handled in this process, as Arrow tables: a job of Spark costs more than they do; and all
changes of a run without Spark. The answers are those of Spark, which has the same steps for many rows, and
for columns that cannot be grouped here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.expr.spark_columns import quoted
from headrace.pipelines.definitions import RESERVED
from headrace.tables.version_folders import WEIGHT as SINK_WEIGHT

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, MapType, StructType

WEIGHT = f"{RESERVED}weight"
"""Column of changes: how many more of a row there are."""

COPY = f"{RESERVED}copy"

FEW = 20_000
"""Rows up to which they are read into this process."""

MAX_BYTES = 1 << 28
"""Bytes of files up to which their rows are read into this process."""


def with_weight(rows: DataFrame, weight: int) -> DataFrame:
    """Return rows as changes with the same weight."""
    from pyspark.sql import functions as f

    return rows.withColumn(WEIGHT, f.lit(weight).cast("long"))


def consolidate(changes: DataFrame) -> DataFrame:
    """Consolidate weights: each row at most once, with a non-zero weight."""
    from pyspark.sql import functions as f

    fields = [field for field in changes.schema.fields if field.name != WEIGHT]

    def columns(form: Callable[[Column, DataType], Column]) -> list[Column]:
        return [form(f.col(quoted(each.name)), each.dataType).alias(each.name) for each in fields]

    maps = any(holds_map(each.dataType) for each in fields)
    rows = changes.select(*columns(with_entries), WEIGHT) if maps else changes
    names = [quoted(each.name) for each in fields]
    found = rows.groupBy(*names).agg(f.sum(WEIGHT).alias(WEIGHT)).where(f.col(WEIGHT) != 0)
    return found.select(*columns(with_maps), WEIGHT) if maps else found


def difference(before: DataFrame, now: DataFrame) -> DataFrame:
    """Return the changes that turn the rows `before` into the rows `now`."""
    return consolidate(with_weight(before, -1).unionByName(with_weight(now, 1)))


def expand(rows: DataFrame, copies: str = WEIGHT) -> DataFrame:
    """Repeat each row `copies` times, an expression over its weight, and drop the weight."""
    from pyspark.sql import functions as f

    names = [quoted(name) for name in rows.columns if name != WEIGHT]
    below = f.raise_error(f.lit("rows are taken back that the table does not hold: --full-refresh"))
    count = f.when(f.expr(copies) < 0, below).otherwise(f.expr(copies)).cast("int")
    once, others = rows.where(f"{copies} = 1"), rows.where(f"{copies} <> 1")
    several = others.select(*names, f.explode(f.array_repeat(f.lit(1), count)).alias(COPY))
    return once.select(*names).unionByName(several.select(*names))


def has_removals(changes: DataFrame) -> bool:
    """Return whether changes have retractions, by computing them."""
    return not changes.where(f"{WEIGHT} < 0").isEmpty()


# -- kinds of columns -------------------------------------------------------------------------------


def can_be_grouped(schema: StructType) -> bool:
    """Return whether Spark can group equal rows, which excludes variants and text with a collation."""
    return not kinds_in(schema) & {"variant", "collated", "interval", "geography", "geometry"}


def kinds_in(schema: StructType) -> set[str]:
    """Return the kinds of the column types, nested ones included."""
    return {kind for field in schema.fields for kind in kinds_of(field.dataType)}


def kinds_of(of: DataType) -> Iterator[str]:
    """Yield the kinds of a type and its nested types."""
    from pyspark.sql import types as t

    match of:
        case t.StringType():
            yield "string" if of.isUTF8BinaryCollation() else "collated"
        case t.DayTimeIntervalType() | t.YearMonthIntervalType() | t.CalendarIntervalType():
            yield "interval"
        case t.UserDefinedType():
            yield "udt"
        case _:
            yield of.typeName()
    match of:
        case t.StructType():
            yield from kinds_in(of)
        case t.ArrayType():
            yield from kinds_of(of.elementType)
        case t.MapType():
            yield from kinds_of(of.keyType)
            yield from kinds_of(of.valueType)
        case _:
            pass


# -- maps as their entries in order, by which rows that hold maps are grouped ------------------------

# Spark sorts the entries of maps that it groups by, and its generated code makes of a null of a primitive
# type some other value then (4.3).


def holds_map(kind: DataType) -> bool:
    """Return whether values of a type are, or contain, maps."""
    return "map" in kinds_of(kind)


def with_entries(column: Column, kind: DataType) -> Column:
    """Return a value in which each map is the array of its entries, by key."""
    from pyspark.sql import functions as f

    def of_map(maps: Column, kind: MapType) -> Column:
        def entry(each: Column) -> Column:
            value = with_entries(each["value"], kind.valueType)
            return f.struct(each["key"].alias("key"), value.alias("value"))

        return f.array_sort(f.transform(f.map_entries(maps), entry))

    return _with_each_map(column, kind, of_map)


def with_maps(column: Column, kind: DataType) -> Column:
    """Restore maps from their entries: the inverse of `with_entries`."""
    from pyspark.sql import functions as f

    def of_map(entries: Column, kind: MapType) -> Column:
        def entry(each: Column) -> Column:
            return f.struct(each["key"], with_maps(each["value"], kind.valueType))

        return f.map_from_entries(f.transform(entries, entry))

    return _with_each_map(column, kind, of_map)


def _with_each_map(column: Column, kind: DataType, of_map: Callable[[Column, MapType], Column]) -> Column:
    """Replace each outermost map in a value."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not holds_map(kind):
        return column
    match kind:
        case MapType():
            return of_map(column, kind)
        case ArrayType():
            return f.transform(column, lambda each: _with_each_map(each, kind.elementType, of_map))
        case _:
            assert isinstance(kind, StructType)
            parts = (_with_each_map(column[x.name], x.dataType, of_map).alias(x.name) for x in kind.fields)
            return f.when(column.isNotNull(), f.struct(*parts))


# -- changes in this process, as Arrow tables ------------------------------------------------------------

# Rows are grouped by Polars, to which one NaN is as another, and 0.0 as -0.0: as to Spark.


def comparable_schema(schema: StructType) -> pa.Schema | None:
    """Return a table's columns as an Arrow schema; None if some cannot be compared here."""
    from pyspark.errors import PySparkException
    from pyspark.sql.pandas.types import to_arrow_schema

    if kinds_in(schema) & {"map", "collated", "variant", "interval", "udt", "void", "geography", "geometry"}:
        return None
    try:
        made: Any = to_arrow_schema(schema, timezone="UTC")
    except (PySparkException, ValueError, TypeError):
        return None
    return made


def read_ticks(ticks: Iterable[Path], columns: pa.Schema) -> pa.Table:
    """Read ticks of a changelog, consolidated. Raises `NeedsSpark` for types that are to be converted."""
    return changes_of_tick(table_of_ticks(ticks), columns)


def table_of_ticks(ticks: Iterable[Path]) -> pa.Table:
    """Return the changes in some ticks of a changelog, of which there is one at least, as they are stored."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = (file for folder in ticks for file in folder.glob("*.parquet"))
    return pa.concat_tables(pq.ParquetFile(file).read() for file in files)


def changes_of_tick(made: pa.Table, columns: pa.Schema) -> pa.Table:
    """Return changes of a flow with the columns of a table, consolidated. Raises like `read_ticks`."""
    import pyarrow as pa

    from headrace.pipelines.in_process_inputs import columns_of_table

    typed = columns_of_table("the table's flow", made.drop_columns([SINK_WEIGHT]), columns)
    return consolidate_arrow(typed.append_column(WEIGHT, made[SINK_WEIGHT].cast(pa.int64())))


def consolidate_arrow(changes: pa.Table) -> pa.Table:
    """Consolidate weights: each row at most once, with a non-zero weight."""
    import polars as pl

    names = [name for name in changes.column_names if name != WEIGHT]
    frame: Any = pl.from_arrow(changes)
    if not names:
        return frame.sum().filter(pl.col(WEIGHT) != 0).to_arrow().cast(changes.schema)
    # Rows stay as the first of their group was, -0.0 included, and in the order in which they came.
    places = frame.with_columns(pl.int_range(pl.len()).alias(COPY)).group_by(names, maintain_order=True)
    kept = places.agg(pl.col(WEIGHT).sum(), pl.col(COPY).first()).filter(pl.col(WEIGHT) != 0)
    rows = changes.take(kept.get_column(COPY).to_arrow())
    weights = kept.get_column(WEIGHT).to_arrow().cast(changes.schema.field(WEIGHT).type)
    return rows.set_column(rows.schema.get_field_index(WEIGHT), changes.schema.field(WEIGHT), weights)


def split_by_rows(rows: pa.Table, some: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Return the rows that none of `some` equals, and the others, among which may be a few more."""
    import polars as pl
    import pyarrow.types as kinds

    plain = [f.name for f in rows.schema if not (kinds.is_nested(f.type) or kinds.is_floating(f.type))]
    if not plain:
        return rows.slice(0, 0), rows
    return split_by_key(rows, pl.from_arrow(some.select(plain)), plain)


def split_by_key(rows: pa.Table, keys: Any, names: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """Return the rows without one of some keys, and those with one. keys: a frame of Polars."""
    import numpy as np
    import polars as pl
    import pyarrow as pa

    frame: Any = pl.from_arrow(rows.select(names))
    found = frame.with_row_index(COPY).join(keys, on=names, how="semi", nulls_equal=True)
    has = np.zeros(len(rows), bool)
    has[found.get_column(COPY).to_numpy()] = True
    return rows.filter(pa.array(~has)), rows.filter(pa.array(has))


def expand_arrow(changes: pa.Table) -> pa.Table | None:
    """Repeat each row by its weight; None if a weight is negative."""
    import numpy as np

    weights = changes[WEIGHT].to_numpy()
    if len(weights) and weights.min() < 0:
        return None
    return changes.drop_columns([WEIGHT]).take(np.repeat(np.arange(len(weights)), weights))


def may_hold_negative_zero(rows: pa.Table) -> bool:
    """Return whether a column has -0.0, or has floats inside of other values."""
    import numpy as np
    import pyarrow.types as kinds

    for field in rows.schema:
        if kinds.is_nested(field.type) and ("float" in str(field.type) or "double" in str(field.type)):
            return True
        if kinds.is_floating(field.type):
            values = rows[field.name].drop_null().to_numpy()
            if np.any((values == 0) & np.signbit(values)):
                return True
    return False


def without_empty_texts(changes: pa.Table, partitioned_by: Sequence[str]) -> pa.Table:
    """Return changes with nulls for empty texts in columns of partitions, for which folders have no name."""
    import polars as pl

    texts = [name for name in partitioned_by if changes.schema.field(name).type == "string"]
    if not texts:
        return changes
    frame: Any = pl.from_arrow(changes)
    nulled = frame.with_columns(pl.when(pl.col(name) != "").then(pl.col(name)).alias(name) for name in texts)
    return consolidate_arrow(nulled.to_arrow().select(changes.column_names).cast(changes.schema))


def as_changes(rows: pa.Table, weight: int = 1) -> pa.Table:
    """Return rows as changes with the same weight."""
    import numpy as np
    import pyarrow as pa

    return rows.append_column(WEIGHT, pa.array(np.full(len(rows), weight, np.int64)))
