"""Maps as their entries in order, by which rows that hold maps are grouped.

Spark sorts the entries of maps that it groups by, and its generated code makes of a null of a primitive type
some other value then (4.3).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def holds_map(kind: DataType) -> bool:
    """Return whether values of a type are maps, or hold some."""
    from pyspark.sql.types import ArrayType, MapType, StructType

    match kind:
        case MapType():
            return True
        case ArrayType():
            return holds_map(kind.elementType)
        case StructType():
            return any(holds_map(field.dataType) for field in kind.fields)
        case _:
            return False


def with_entries(column: Column, kind: DataType) -> Column:
    """Return a value in which each map is the array of its entries, by key."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not holds_map(kind):
        return column
    match kind:
        case MapType():

            def entry(each: Column) -> Column:
                value = with_entries(each["value"], kind.valueType)
                return f.struct(each["key"].alias("key"), value.alias("value"))

            return f.array_sort(f.transform(f.map_entries(column), entry))
        case ArrayType():
            return f.transform(column, lambda each: with_entries(each, kind.elementType))
        case _:
            assert isinstance(kind, StructType)
            parts = (with_entries(column[x.name], x.dataType).alias(x.name) for x in kind.fields)
            return f.when(column.isNotNull(), f.struct(*parts))


def with_maps(column: Column, kind: DataType) -> Column:
    """Return a value of a type from what `with_entries` has made of it."""
    from pyspark.sql import functions as f
    from pyspark.sql.types import ArrayType, MapType, StructType

    if not holds_map(kind):
        return column
    match kind:
        case MapType():

            def entry(each: Column) -> Column:
                return f.struct(each["key"], with_maps(each["value"], kind.valueType))

            return f.map_from_entries(f.transform(column, entry))
        case ArrayType():
            return f.transform(column, lambda each: with_maps(each, kind.elementType))
        case _:
            assert isinstance(kind, StructType)
            parts = (with_maps(column[x.name], x.dataType).alias(x.name) for x in kind.fields)
            return f.when(column.isNotNull(), f.struct(*parts))
