"""Replacement of equal values by one, before comparisons in which Spark keeps them apart: -0.0 by 0.0.

Spark distinguishes the zeros in grouping and join keys, but not when comparing values in `min`, `max` or a
sort. Maps get their entries in the order of the keys.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import functions as f

from headrace.expr.dict_keys import has_representatives
from headrace.expr.types import DataType, Float32Type, Float64Type, ListType, MapType, StructType, holds_maps

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame

    from headrace.expr.types import Schema

    ConvertMap: TypeAlias = Callable[[Column], Column]


@singledispatch
def representative(type: DataType, column: Column) -> Column:
    """Replace -0.0 with 0.0 in a column, and maps with sorted ones, at any depth."""
    return column


@representative.register(Float64Type)
def _float(type: Float64Type, column: Column) -> Column:
    return column + f.lit(0.0)


@representative.register(Float32Type)
def _float32(type: Float32Type, column: Column) -> Column:
    return column + f.lit(0.0).cast("float")


@representative.register(StructType)
def _struct(type: StructType, column: Column) -> Column:
    for field in type.fields:
        if has_representatives(field.type):
            column = column.withField(
                f"`{field.name}`", representative(field.type, column.getField(field.name))
            )
    return column


@representative.register(ListType)
def _list(type: ListType, column: Column) -> Column:
    if not has_representatives(type):
        return column
    return f.transform(column, lambda element: representative(type.element, element))


@representative.register(MapType)
def _map(type: MapType, column: Column) -> Column:
    return f.map_from_entries(sorted_entries(type, representative(type.entries, f.map_entries(column))))


def sorted_entries(type: MapType, entries: Column) -> Column:
    """Sort the entries of a map by their keys."""
    if not holds_maps(type.value):
        return f.sort_array(entries)  # Keys differ, so values are not compared.
    return f.array_sort(entries, _by_key)


def _by_key(one: Column, other: Column) -> Column:
    a, b = one.getField("key"), other.getField("key")
    return f.when(a < b, f.lit(-1)).when(a > b, f.lit(1)).otherwise(f.lit(0))


def _as_it_is(column: Column) -> Column:
    return column


def hashable(type: DataType, column: Column) -> Column:
    """Replace a value by one that Spark hashes, alike for equal values: maps by their sorted entries."""
    if not holds_maps(type):
        return column
    return rebuilt(type, representative(type, column), before=f.map_entries)


def from_hashable(type: DataType, column: Column) -> Column:
    """Return the representative of the value that `hashable` replaced."""
    return rebuilt(type, column, after=f.map_from_entries)


def rebuilt(
    type: DataType, column: Column, *, before: ConvertMap = _as_it_is, after: ConvertMap = _as_it_is
) -> Column:
    """Convert maps, at any depth: `before` to their entries, and `after` from the converted entries."""
    match type:
        case _ if not holds_maps(type):
            return column
        case StructType(fields):
            parts = (
                rebuilt(each.type, column.getField(each.name), before=before, after=after).alias(each.name)
                for each in fields
            )
            return f.when(column.isNotNull(), f.struct(*parts))
        case ListType(element):
            return f.transform(column, lambda each: rebuilt(element, each, before=before, after=after))
        case MapType():
            return after(rebuilt(type.entries, before(column), before=before, after=after))
        case _:
            raise TypeError(type)


def with_representatives(frame: DataFrame, schema: Schema) -> DataFrame:
    """Replace values by their representatives in the columns of `schema`; leave others unchanged."""
    floats = {field.name: field.type for field in schema.fields if has_representatives(field.type)}
    if not floats:
        return frame
    columns = {name: frame[f"`{name.replace('`', '``')}`"] for name in frame.columns}
    return frame.select(
        *(
            representative(floats[name], column).alias(name) if name in floats else column
            for name, column in columns.items()
        )
    )
