"""Maps as their entries in order, by which rows that hold maps are grouped.

Spark sorts the entries of maps that it groups by, and its generated code makes of a null of a primitive type
some other value then (4.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.pipelines.snapshots import kinds_of

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType, MapType


def holds_map(kind: DataType) -> bool:
    """Return whether values of a type are maps, or hold some."""
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
    """Return a value of a type from what `with_entries` has made of it."""
    from pyspark.sql import functions as f

    def of_map(entries: Column, kind: MapType) -> Column:
        def entry(each: Column) -> Column:
            return f.struct(each["key"], with_maps(each["value"], kind.valueType))

        return f.map_from_entries(f.transform(entries, entry))

    return _with_each_map(column, kind, of_map)


def _with_each_map(column: Column, kind: DataType, of_map: Callable[[Column, MapType], Column]) -> Column:
    """Return a value in which something else is in the place of each map that is not within another one."""
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
