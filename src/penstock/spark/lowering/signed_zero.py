"""Replacement of -0.0 with 0.0 before comparisons in which Spark keeps them apart.

Spark distinguishes them in grouping and join keys, but not when comparing values in `min`, `max` or a sort.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.expr.dict_keys import holds_floats
from penstock.expr.types import DataType, Float64Type, ListType, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.expr.types import Schema


@singledispatch
def replace_negative_zero(type: DataType, column: Column) -> Column:
    """Replace -0.0 with 0.0 in a column, at any depth."""
    return column


@replace_negative_zero.register(Float64Type)
def _float(type: Float64Type, column: Column) -> Column:
    return column + f.lit(0.0)


@replace_negative_zero.register(StructType)
def _struct(type: StructType, column: Column) -> Column:
    for field in type.fields:
        if holds_floats(field.type):
            column = column.withField(
                f"`{field.name}`", replace_negative_zero(field.type, column.getField(field.name))
            )
    return column


@replace_negative_zero.register(ListType)
def _list(type: ListType, column: Column) -> Column:
    if not holds_floats(type):
        return column
    return f.transform(column, lambda element: replace_negative_zero(type.element, element))


def with_one_zero(frame: DataFrame, schema: Schema) -> DataFrame:
    """Replace -0.0 with 0.0 in the columns of `schema`; leave other columns unchanged."""
    floats = {field.name: field.type for field in schema.fields if holds_floats(field.type)}
    if not floats:
        return frame
    columns = {name: frame[f"`{name.replace('`', '``')}`"] for name in frame.columns}
    return frame.select(
        *(
            replace_negative_zero(floats[name], column).alias(name) if name in floats else column
            for name, column in columns.items()
        )
    )
