"""Rendering of expressions as text, for messages and `explain`.

Rendered parts carry how strongly they bind, so that brackets appear only where they are needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypeAlias, cast

from headrace.expr.code_runtime import NAN
from headrace.expr.time_texts import format_duration
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

# --- types of constants, and their Python source in generated code --------------------------------


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


Rendered: TypeAlias = tuple[str, int]
"""Text and its binding strength."""

# Strength as in Python, so that the text can be written back as it stands.
_INFIX = {
    "eq": ("==", 1),
    "ne": ("!=", 1),
    "lt": ("<", 1),
    "le": ("<=", 1),
    "gt": (">", 1),
    "ge": (">=", 1),
    "or": ("|", 2),
    "and": ("&", 3),
    "add": ("+", 5),
    "subtract": ("-", 5),
    "multiply": ("*", 6),
    "divide": ("/", 6),
    "div": ("//", 6),
    "modulo": ("%", 6),
}
_PREFIX = {"not": ("~", 7), "negate": ("-", 7)}
ATOM = 9
_COMPARISON = 1
_ASSOCIATIVE = ("|", "&")
_MAX_BITS = 256


def constant_text(value: object) -> str:
    """Render a value as Python source. Integers longer than any column's are shown by size.

    Python refuses to format integers of thousands of digits.
    """
    if isinstance(value, int) and value.bit_length() > _MAX_BITS:
        return f"an integer of {value.bit_length():,} bits"
    return repr(value)


def literal_text(value: object) -> str:
    """Render the constant `value` as shown in expressions."""
    if isinstance(value, timedelta):
        return format_duration(value)
    if value is None:
        return "null"
    return constant_text(value) if type(value) in (int, str, bytes) else str(value)


def call_text(function: str, arguments: Sequence[Rendered], options: tuple[object, ...]) -> Rendered:
    """Render a call with rendered arguments, as an operator if the function has a symbol."""
    if function in _INFIX and len(arguments) == 2:
        symbol, strength = _INFIX[function]
        left, right = arguments
        on_left = strength + (1 if strength == _COMPARISON else 0)
        on_right = strength + (0 if symbol in _ASSOCIATIVE else 1)
        return f"{_bracketed(left, on_left)} {symbol} {_bracketed(right, on_right)}", strength
    if function in _PREFIX:
        symbol, strength = _PREFIX[function]
        return f"{symbol}{_bracketed(arguments[0], strength)}", strength
    if function == "shift":
        (span,) = options
        assert isinstance(span, timedelta)
        sign, shown = ("-", -span) if span < timedelta() else ("+", span)
        return f"{_bracketed(arguments[0], 5)} {sign} {format_duration(shown)}", 5
    if function == "variable":
        return str(options[0]), ATOM
    if function == "lambda":
        names = cast("tuple[str, ...]", options[0])
        return f"lambda {', '.join(names)}: {arguments[0][0]}", 0
    if function == "field":
        return f"{_bracketed(arguments[0], ATOM)}.{options[0]}", ATOM
    shown_options = [_option(o) for o in options]
    return f"{function}({', '.join([*(text for text, _ in arguments), *shown_options])})", ATOM


def _bracketed(part: Rendered, strength: int) -> str:
    text, own = part
    return f"({text})" if own < strength else text


def _option(option: object) -> str:
    if isinstance(option, timedelta):
        return format_duration(option)
    return str(option) if isinstance(option, DataType | int) else repr(option)
