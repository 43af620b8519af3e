"""Weighted rows: changes of a table, as a DataFrame or an Arrow table with a column of multiplicities.

Few changes are handled in this process, as Arrow tables: a job of Spark costs more than they do. The answers
are those of Spark, which has the same steps for many rows, and for columns that Arrow cannot group.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.expr.spark_columns import quoted
from headrace.io.source import WEIGHT as SINK_WEIGHT
from headrace.pipelines.definitions import RESERVED

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType, MapType, StructType

WEIGHT = f"{RESERVED}weight"
"""Column of changes: how many more of a row there are."""

COPY = f"{RESERVED}copy"

FEW = 20_000
"""Rows up to which they are read into this process."""


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


# -- few changes, in Arrow -----------------------------------------------------------------------------


def comparable_schema(schema: StructType) -> pa.Schema | None:
    """Return a table's columns as an Arrow schema; None if some cannot be compared here."""
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


def read_ticks(ticks: Iterable[Path], columns: pa.Schema) -> pa.Table:
    """Read ticks of a changelog, consolidated."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    tables = [pq.ParquetFile(file).read() for folder in ticks for file in folder.glob("*.parquet")]
    typed = [
        pa.table(
            [table[name].cast(columns.field(name).type) for name in columns.names] + [table[SINK_WEIGHT]],
            names=[*columns.names, WEIGHT],
        )
        for table in tables
    ]
    return consolidate_arrow(pa.concat_tables(typed))


def consolidate_arrow(changes: pa.Table) -> pa.Table:
    """Consolidate weights: each row at most once, with a non-zero weight."""
    import pyarrow.compute as pc

    compute: Any = pc
    names = [name for name in changes.column_names if name != WEIGHT]
    whole = changes.group_by(names).aggregate([(WEIGHT, "sum")]).rename_columns([*names, WEIGHT])
    return whole.filter(compute.not_equal(whole[WEIGHT], 0))


def expand_arrow(changes: pa.Table) -> pa.Table | None:
    """Repeat each row by its weight; None if a weight is negative."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc
    weights = changes[WEIGHT]
    if len(weights) and compute.min(weights).as_py() < 0:
        return None
    copies = [at for at, count in enumerate(weights.to_pylist()) for _ in range(count)]
    return changes.drop_columns([WEIGHT]).take(pa.array(copies, pa.int64()))


def with_rows_of(changes: pa.Table, folder: Path, columns: pa.Schema) -> pa.Table:
    """Return changes together with the rows of a version, as changes to an empty table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(folder.glob("*.parquet"))
    held = [pq.ParquetFile(file).read().select(columns.names).cast(columns) for file in files]
    rows = pa.concat_tables([columns.empty_table(), *held])
    before = rows.append_column(WEIGHT, pa.array([1] * len(rows), pa.int64()))
    return consolidate_arrow(pa.concat_tables([before, changes.cast(before.schema)]))
