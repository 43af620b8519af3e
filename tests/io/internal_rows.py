"""Random schemas, nested ones too, and random internal rows of them with all extremes."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import singledispatch
from typing import Any

from hypothesis import strategies as st

from headrace.expr.code_runtime import NAN
from headrace.expr.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT32,
    FLOAT64,
    INTEGERS,
    INTERVAL,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
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
    holds_maps,
)
from headrace.expr.value_keys import nested_key

_DECIMALS = [DecimalType(), DecimalType(5, 2), DecimalType(38, 0), DecimalType(38, 38)]
_PLAIN = st.sampled_from(
    [BOOL, *INTEGERS, FLOAT32, FLOAT64, STR, BYTES, DATE, TIMESTAMP, TIMESTAMP_NTZ, INTERVAL, *_DECIMALS]
)


def fields(types: st.SearchStrategy[DataType]) -> st.SearchStrategy[tuple[Field, ...]]:
    drawn = st.lists(st.tuples(types, st.booleans()), min_size=1, max_size=4)
    return drawn.map(
        lambda parts: tuple(Field(f"c{at}", type_, nullable) for at, (type_, nullable) in enumerate(parts))
    )


TYPES: st.SearchStrategy[DataType] = st.recursive(
    _PLAIN,
    lambda inner: (
        st.builds(ListType, inner, st.booleans())
        | fields(inner).map(StructType)
        | st.builds(MapType, inner.filter(lambda key: not holds_maps(key)), inner, st.booleans())
    ),
    max_leaves=5,
)
SCHEMAS = fields(TYPES).map(Schema)
FLAT_SCHEMAS = fields(_PLAIN.filter(lambda t: t != BYTES)).map(Schema)


@singledispatch
def values(type_: DataType) -> st.SearchStrategy[Any]:
    raise NotImplementedError(type_)


@values.register
def _(type_: BoolType) -> st.SearchStrategy[Any]:
    return st.booleans()


@values.register
def _(type_: IntegerType) -> st.SearchStrategy[Any]:
    return st.integers(*type_.range) | st.sampled_from(type_.range)


@values.register
def _(type_: Float64Type) -> st.SearchStrategy[Any]:
    rare = st.sampled_from([NAN, -0.0, math.inf, -math.inf, 5e-324])
    return st.floats(allow_nan=False) | rare


@values.register
def _(type_: Float32Type) -> st.SearchStrategy[Any]:
    return st.floats(width=32, allow_nan=False) | st.sampled_from([NAN, -0.0, math.inf, -math.inf])


@values.register
def _(type_: DecimalType) -> st.SearchStrategy[Any]:
    most = 10**type_.precision - 1
    digits = st.integers(-most, most) | st.sampled_from([most, -most, 0])
    return digits.map(lambda n: Decimal(f"{n}E-{type_.scale}"))


@values.register
def _(type_: StrType) -> st.SearchStrategy[Any]:
    return st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


@values.register
def _(type_: BytesType) -> st.SearchStrategy[Any]:
    return st.binary(max_size=5)


@values.register
def _(type_: DateType) -> st.SearchStrategy[Any]:
    return st.dates() | st.sampled_from([date.min, date.max])


@values.register
def _(type_: TimestampType) -> st.SearchStrategy[Any]:
    extremes = [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
    # UTC has no hour twice: a fold would only be drawn to say nothing.
    drawn = st.datetimes(timezones=st.just(UTC)).map(lambda moment: moment.replace(fold=0))
    return drawn | st.sampled_from(extremes)


@values.register
def _(type_: TimestampNtzType) -> st.SearchStrategy[Any]:
    return st.datetimes().map(lambda at: at.replace(fold=0)) | st.sampled_from([datetime.min, datetime.max])


@values.register
def _(type_: IntervalType) -> st.SearchStrategy[Any]:
    extremes = [timedelta(microseconds=2**63 - 1), timedelta(microseconds=-(2**63))]
    return st.timedeltas(-timedelta(days=9_999), timedelta(days=9_999)) | st.sampled_from(extremes)


@values.register
def _(type_: ListType) -> st.SearchStrategy[Any]:
    return st.lists(cells(type_.element, type_.nullable), max_size=3).map(tuple)


@values.register
def _(type_: StructType) -> st.SearchStrategy[Any]:
    return st.tuples(*(cells(f.type, f.nullable) for f in type_.fields))


@values.register
def _(type_: MapType) -> st.SearchStrategy[Any]:
    keys = values(type_.key).map(nested_key)
    drawn = st.dictionaries(keys, cells(type_.value, type_.nullable), max_size=3)
    return drawn.map(lambda entries: tuple(entries.items()))


def cells(type_: DataType, nullable: bool) -> st.SearchStrategy[Any]:
    return st.none() | values(type_) if nullable else values(type_)


def rows(schema: Schema) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    row = st.tuples(*(cells(f.type, f.nullable) for f in schema.fields))
    return st.lists(row, max_size=6)


SCHEMAS_WITH_ROWS = SCHEMAS.flatmap(lambda s: st.tuples(st.just(s), rows(s)))
FLAT_WITH_ROWS = FLAT_SCHEMAS.flatmap(lambda s: st.tuples(st.just(s), rows(s)))
