"""Conversion between values and those that Spark gives to Python functions of rows, and takes from them.

Times have no zone and are in UTC, and nested rows are Spark's `Row`, at any depth.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache, singledispatch
from typing import Any, TypeAlias

from headrace.expr.code_runtime import float32
from headrace.expr.types import DataType, Float32Type, ListType, MapType, StructType, TimestampType

Convert: TypeAlias = "Callable[[Any], Any]"


@cache
def to_argument(type: DataType) -> Convert:
    """Return the function from a value, which may be null, to an argument."""
    return _nullable(_argument(type))


@cache
def from_result(type: DataType) -> Convert:
    """Return the function from a result, which may be null, to a value."""
    return _nullable(_value(type))


def _nullable(convert: Convert | None) -> Convert:
    if convert is None:
        return _same
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value


@singledispatch
def _argument(type: DataType) -> Convert | None:
    return None


@_argument.register(TimestampType)
def _naive(type: TimestampType) -> Convert | None:
    return lambda value: value.replace(tzinfo=None)


@_argument.register(ListType)
def _elements(type: ListType) -> Convert | None:
    if _argument(type.element) is None:
        return None
    element = to_argument(type.element)
    return lambda values: list(map(element, values))


@_argument.register(MapType)
def _entries(type: MapType) -> Convert | None:
    if _argument(type.key) is None and _argument(type.value) is None:
        return None
    key, value = to_argument(type.key), to_argument(type.value)
    return lambda entries: {key(k): value(v) for k, v in entries.items()}


@_argument.register(StructType)
def _row(type: StructType) -> Convert | None:
    from pyspark.sql import Row

    make: Any = Row(*(field.name for field in type.fields))
    parts = [to_argument(field.type) for field in type.fields]
    return lambda values: make(*(part(value) for part, value in zip(parts, values, strict=True)))


@singledispatch
def _value(type: DataType) -> Convert | None:
    return None


@_value.register(TimestampType)
def _aware(type: TimestampType) -> Convert | None:
    def aware(value: Any) -> Any:
        is_naive = isinstance(value, datetime) and value.tzinfo is None
        return value.replace(tzinfo=UTC) if is_naive else value

    return aware


@_value.register(Float32Type)
def _short(type: Float32Type) -> Convert | None:
    return lambda value: float32(value) if isinstance(value, float) else value


@_value.register(ListType)
def _values(type: ListType) -> Convert | None:
    if _value(type.element) is None:
        return None
    element = from_result(type.element)
    return lambda values: list(map(element, values)) if isinstance(values, list | tuple) else values


@_value.register(MapType)
def _values_of_entries(type: MapType) -> Convert | None:
    if _value(type.key) is None and _value(type.value) is None:
        return None
    key, value = from_result(type.key), from_result(type.value)

    def entries(given: Any) -> Any:
        return {key(k): value(v) for k, v in given.items()} if isinstance(given, dict) else given

    return entries


@_value.register(StructType)
def _values_of_row(type: StructType) -> Convert | None:
    if all(_value(field.type) is None for field in type.fields):
        return None
    parts = {field.name: from_result(field.type) for field in type.fields}

    def row(given: Any) -> Any:
        if isinstance(given, dict):
            return {name: parts.get(name, _same)(value) for name, value in given.items()}
        if isinstance(given, tuple | list) and len(given) == len(parts):
            return tuple(part(value) for part, value in zip(parts.values(), given, strict=True))
        return given

    return row
