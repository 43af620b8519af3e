"""Nulls within nested columns, where the flow declares none and Spark cannot tell that there are none."""

from __future__ import annotations

from functools import reduce, singledispatch
from typing import TYPE_CHECKING

from penstock.expr.types import DataType, ListType, StructType

if TYPE_CHECKING:
    from pyspark.sql import Column


@singledispatch
def null_within(data_type: DataType, column: Column) -> Column | None:
    """Whether a value that is not null itself holds a null that must not be; None: it cannot."""
    return None


@null_within.register(StructType)
def _(data_type: StructType, column: Column) -> Column | None:
    found: list[Column] = []
    for field in data_type.fields:
        part = column.getField(field.name)
        if not field.nullable:
            found.append(column.isNotNull() & part.isNull())
        deeper = null_within(field.type, part)
        if deeper is not None:
            found.append(deeper)
    return reduce(lambda one, other: one | other, found) if found else None


@null_within.register(ListType)
def _(data_type: ListType, column: Column) -> Column | None:
    from pyspark.sql import functions as f

    deeper = null_within(data_type.element, f.lit(None))
    if data_type.nullable and deeper is None:
        return None

    def is_wrong(element: Column) -> Column:
        inside = null_within(data_type.element, element)
        if data_type.nullable:
            assert inside is not None
            return inside
        return element.isNull() if inside is None else element.isNull() | inside

    return f.exists(column, is_wrong)
