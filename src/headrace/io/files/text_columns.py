"""Conversion of text to typed Arrow columns, with the meaning of `text_values`.

Arrow's casts are used where they agree with the grammar of `text_values`: they also accept "0x1F" as an
integer and "inf" as a float, and let decimals overflow. All other text is parsed value by value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.expr.types import (
    FLOAT64,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    StrType,
    TimestampNtzType,
    TimestampType,
)
from headrace.io.arrow import arrow_type, in_calendar, values_to_array
from headrace.io.files.text_values import parser_of

_compute: Any = pc
_INTEGER = b"0123456789-"
_DECIMAL = b"0123456789-+."
_DECIMAL_DIGITS = 38
_NUMBER = _DECIMAL + b"eE"
_HOUR = len("2001-12-31T23")
_ZONED_TIME = r"^.{10}[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)$"


def typed_column(texts: pa.Array, data_type: DataType) -> pa.Array:
    """Convert text, or null, to the Arrow type of a column type. Raises `Unfit` as `parse` does."""
    try:
        column = cast_text(data_type, texts)
    except pa.ArrowException:
        column = None
    return parsed_column(texts, data_type, parser_of(data_type)) if column is None else column


def parsed_column(texts: pa.Array, data_type: DataType, parse_text: Callable[[str], Any]) -> pa.Array:
    """Convert values one by one."""
    values = [None if text is None else parse_text(text) for text in texts.to_pylist()]
    return values_to_array(values, arrow_type(data_type))


@singledispatch
def cast_text(data_type: DataType, texts: pa.Array) -> pa.Array | None:
    """Convert text by a cast. None or an `ArrowException` if that is not certain to be right."""
    raise TypeError(data_type)


@cast_text.register
def _(data_type: StrType, texts: pa.Array) -> pa.Array | None:
    return texts


@cast_text.register
def _(data_type: BytesType, texts: pa.Array) -> pa.Array | None:
    return texts.cast(pa.binary())


@cast_text.register
def _(data_type: BoolType, texts: pa.Array) -> pa.Array | None:
    lower = _compute.ascii_lower(texts)
    true = _compute.equal(lower, "true")
    return true if _all(_compute.or_(true, _compute.equal(lower, "false"))) else None


@cast_text.register
def _(data_type: IntegerType, texts: pa.Array) -> pa.Array | None:
    return texts.cast(arrow_type(data_type)) if _consists_of(_INTEGER, texts) else None


@cast_text.register
def _(data_type: Float64Type, texts: pa.Array) -> pa.Array | None:
    return texts.cast(pa.float64()) if _consists_of(_NUMBER, texts) else None


@cast_text.register
def _(data_type: Float32Type, texts: pa.Array) -> pa.Array | None:
    numbers = cast_text(FLOAT64, texts)
    return None if numbers is None else numbers.cast(pa.float32())


@cast_text.register
def _(data_type: DecimalType, texts: pa.Array) -> pa.Array | None:
    # Arrow's tables of powers of ten end with the digits that it keeps, and are read beyond their end.
    if not _consists_of(_DECIMAL, texts) or longest(texts) > _DECIMAL_DIGITS:
        return None
    # Too many digits before the point wrap around.
    limit = float(10 ** (data_type.precision - data_type.scale))
    fit = _compute.less(_compute.abs(texts.cast(pa.float64())), limit)
    return texts.cast(arrow_type(data_type)) if _all(fit) else None


@cast_text.register
def _(data_type: DateType, texts: pa.Array) -> pa.Array | None:
    days = texts.cast(pa.date32())
    return days if in_calendar(data_type, days) else None


@cast_text.register
def _(data_type: TimestampType, texts: pa.Array) -> pa.Array | None:
    # Casts also take hours without minutes. Only without a zone are these known by their length.
    try:
        if _compute.any(_compute.equal(_compute.binary_length(texts), _HOUR)).as_py():
            return None
        times = texts.cast(pa.timestamp("us")).cast(arrow_type(data_type))
    except pa.ArrowInvalid:
        if not _all(_compute.match_substring_regex(texts, _ZONED_TIME)):
            return None
        times = texts.cast(arrow_type(data_type))
    return times if in_calendar(data_type, times) else None


@cast_text.register
def _(data_type: TimestampNtzType, texts: pa.Array) -> pa.Array | None:
    # Hours without minutes are known by their length; with a zone, the cast fails.
    if _compute.any(_compute.equal(_compute.binary_length(texts), _HOUR)).as_py():
        return None
    try:
        times = texts.cast(arrow_type(data_type))
    except pa.ArrowInvalid:
        return None
    return times if in_calendar(data_type, times) else None


@cast_text.register
def _(data_type: IntervalType, texts: pa.Array) -> pa.Array | None:
    return None


def longest(texts: pa.Array) -> int:
    """Return the length of the longest text in bytes, 0 if there is none."""
    return _compute.max(_compute.binary_length(texts)).as_py() or 0


def _all(booleans: pa.Array) -> bool:
    return _compute.all(booleans).as_py() is not False


def _consists_of(characters: bytes, texts: pa.Array) -> bool:
    data = texts.buffers()[2]
    return data is None or not data.to_pybytes().translate(None, characters)
