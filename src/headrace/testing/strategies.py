"""Hypothesis strategies for rows of a schema.

Values are drawn from a few, so that rows match, including edge cases: null, NaN, -0.0, the empty string.

    @given(st.lists(rows(orders.schema)))  # orders: a stream of the flow under test
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import singledispatch
from typing import Any

from hypothesis import strategies as st

from headrace.expr.code_runtime import float32
from headrace.expr.row_classes import row_class
from headrace.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    Schema,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)


@singledispatch
def values(type_: DataType) -> st.SearchStrategy[Any]:
    """Generate values of a column type, as users give them."""
    raise NotImplementedError(f"no random values of {type_}")


@values.register
def _bool(type_: BoolType) -> st.SearchStrategy[Any]:
    return st.booleans()


@values.register
def _int(type_: IntegerType) -> st.SearchStrategy[Any]:
    return st.integers(-2, 3)


@values.register
def _float(type_: Float64Type) -> st.SearchStrategy[Any]:
    # 0.1, 0.2, 1e16 reveal order-dependent float sums; inf and NaN reveal sums that cannot retract.
    return st.sampled_from([0.0, -0.0, 0.1, 0.2, -1.5, 1e16, float("nan"), float("inf"), float("-inf")])


@values.register
def _float32(type_: Float32Type) -> st.SearchStrategy[Any]:
    return values(Float64Type()).map(float32)


@values.register
def _decimal(type_: DecimalType) -> st.SearchStrategy[Any]:
    return st.sampled_from([Decimal(0), Decimal("0.5"), Decimal("-1.25"), Decimal("3")])


@values.register
def _str(type_: StrType) -> st.SearchStrategy[Any]:
    return st.sampled_from(["", "a", "ab", "A", "ä", "\U0001f600"])


@values.register
def _bytes(type_: BytesType) -> st.SearchStrategy[Any]:
    return st.sampled_from([b"", b"a", b"\xff"])


@values.register
def _date(type_: DateType) -> st.SearchStrategy[Any]:
    return st.sampled_from([date(2001, 1, 1), date(1969, 12, 31)])


@values.register
def _timestamp(type_: TimestampType) -> st.SearchStrategy[Any]:
    moments = [datetime(2001, 1, 1, 23, 59, 59, 999_999), datetime(2001, 1, 2), datetime(1969, 12, 31)]
    return st.sampled_from([moment.replace(tzinfo=UTC) for moment in moments])


@values.register
def _timestamp_ntz(type_: TimestampNtzType) -> st.SearchStrategy[Any]:
    return st.sampled_from(
        [datetime(2001, 1, 1, 23, 59, 59, 999_999), datetime(2001, 1, 2), datetime(1969, 12, 31)]
    )


@values.register
def _interval(type_: IntervalType) -> st.SearchStrategy[Any]:
    units = (timedelta(days=1), timedelta(hours=1), timedelta(minutes=1), timedelta(microseconds=1))
    return st.integers(-100, 100).map(lambda count: count * units[type_.last])


@values.register
def _list(type_: ListType) -> st.SearchStrategy[Any]:
    return st.lists(cells(Field("element", type_.element, type_.nullable)), max_size=2)


@values.register
def _map(type_: MapType) -> st.SearchStrategy[Any]:
    value = cells(Field("value", type_.value, type_.nullable))
    return st.dictionaries(values(type_.key), value, max_size=2)


@values.register
def _struct(type_: StructType) -> st.SearchStrategy[Any]:
    return st.builds(row_class(Schema(type_.fields, type_.row_class)), *(cells(f) for f in type_.fields))


def cells(field: Field) -> st.SearchStrategy[Any]:
    """Generate values of a column, with nulls if nullable."""
    return st.none() | values(field.type) if field.nullable else values(field.type)


def rows(schema: Schema) -> st.SearchStrategy[Any]:
    """Generate rows of a schema, as users give them to a source.

    >>> import headrace as hr
    >>> numbers = hr.Flow("drawn").source("numbers", int)
    >>> rows(numbers.schema)
    integers(min_value=-2, max_value=3)
    """
    if schema.scalar:
        return cells(schema.fields[0])
    return st.builds(row_class(schema), *(cells(f) for f in schema.fields))
