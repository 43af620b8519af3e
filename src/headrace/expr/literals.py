"""Types of constants, and their Python source in generated code."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

from headrace.expr.code_runtime import NAN
from headrace.expr.types import (
    BOOL,
    BYTES,
    DATE,
    FLOAT64,
    INT64,
    INTERVAL,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    IntegerType,
    fits_interval,
)
from headrace.expr.typing_rules import NULL

_TYPES: dict[type, DataType] = {
    bool: BOOL,
    int: INT64,
    float: FLOAT64,
    str: STR,
    bytes: BYTES,
    date: DATE,
    datetime: TIMESTAMP,
    timedelta: INTERVAL,
    type(None): NULL,
}
_MAX_PRECISION = 38


def literal_type(value: object) -> DataType | None:
    """Return the type of a constant, or None if it has none."""
    if isinstance(value, datetime) and value.utcoffset() is None:
        return TIMESTAMP_NTZ
    if isinstance(value, timedelta) and not fits_interval(value):
        return None
    for cls in type(value).__mro__:
        if cls in _TYPES:
            return _TYPES[cls]
    if isinstance(value, Decimal) and value.is_finite():
        return _decimal_type(value)
    return None


def _decimal_type(value: Decimal) -> DecimalType | None:
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    return DecimalType(precision, scale) if precision <= _MAX_PRECISION else None


def literal_source(value: object) -> str | None:
    """Return a constant as Python source, or None if it must be passed in by name."""
    match value:
        case None | True | False:
            return repr(value)
        case float():
            if value != value:
                return "x_nan"
            return _signed(repr(value)) if abs(value) != float("inf") else None
        case int():
            return _signed(repr(value))
        case str() | bytes():
            return repr(value)
        case _:
            return None


def _signed(shown: str) -> str:
    return f"({shown})" if shown.startswith("-") else shown


def canonical_constant(value: object) -> object:
    """Convert a constant to its internal value."""
    if isinstance(value, float):
        return float(value) if value == value else NAN
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            return datetime.combine(value.date(), value.time().replace(fold=0))
        return value.astimezone(UTC)
    if isinstance(value, timedelta):
        return timedelta(value.days, value.seconds, value.microseconds)
    if isinstance(value, Decimal):
        type = _decimal_type(value)
        return value if type is None else Decimal(f"{value if value else abs(value):.{type.scale}f}")
    return value


def fit_number(value: object, type: DataType) -> object:
    """Convert an int or decimal constant to an exact number type, or return None if that is inexact."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        return None
    if isinstance(type, DecimalType):
        wanted = Decimal(value)
        shown = Decimal(f"{wanted:.{type.scale}f}")
        return shown if shown == wanted and shown.copy_abs() < 10 ** (type.precision - type.scale) else None
    if not isinstance(type, IntegerType) or not isinstance(value, int):
        return None
    low, high = type.range
    return value if low <= value <= high else None
