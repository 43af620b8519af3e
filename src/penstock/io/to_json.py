"""Internal values as JSON has them: what `json_values` reads is the same value again."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from functools import singledispatch
from typing import Any, TypeAlias

from penstock.expr.types import (
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float64Type,
    ListType,
    StructType,
    TimestampType,
)

Convert: TypeAlias = Callable[[Any], Any]


def to_json(data_type: DataType) -> Convert:
    """From a value, or None, to what `json.dumps` takes."""
    convert = _converter(data_type)
    return lambda value: None if value is None else convert(value)


def to_object(fields: Sequence[Field]) -> Convert:
    """From a row to a JSON object."""
    parts = [(field.name, to_json(field.type)) for field in fields]
    return lambda row: {name: convert(value) for (name, convert), value in zip(parts, row, strict=True)}


@singledispatch
def _converter(data_type: DataType) -> Convert:
    return lambda value: value


@_converter.register
def _(data_type: Float64Type) -> Convert:
    return lambda value: value if math.isfinite(value) else _not_finite(value)


def _not_finite(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


@_converter.register
def _(data_type: DecimalType) -> Convert:
    return str


@_converter.register(DateType)
@_converter.register(TimestampType)
def _moment(data_type: DateType | TimestampType) -> Convert:
    return lambda value: value.isoformat()


@_converter.register
def _(data_type: BytesType) -> Convert:
    return lambda value: b64encode(value).decode("ascii")


@_converter.register
def _(data_type: ListType) -> Convert:
    element = to_json(data_type.element)
    return lambda values: [element(value) for value in values]


@_converter.register
def _(data_type: StructType) -> Convert:
    return to_object(data_type.fields)
