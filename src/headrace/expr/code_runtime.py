"""Runtime functions called by generated code, among them decimal arithmetic.

Decimals are computed exactly, then rounded half up to the scale of the result.
"""

from __future__ import annotations

import struct
from ctypes import c_float
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation, Overflow
from math import nextafter
from typing import Any, NoReturn

from headrace.errors import EvaluationError
from headrace.expr.types import DecimalType

NAN = float("nan")
"""Only NaN object that rows may hold, so that tuples with NaN compare and hash equal."""


def float32(value: float) -> float:
    """Round to 32 bits; overflow gives infinity."""
    return c_float(value).value if value == value else NAN


def float32_of_exact(value: int | Decimal) -> float:
    """Round an exact number to 32 bits, once."""
    try:
        near = float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
    if (
        near != value
        and near - near == 0.0
        and struct.unpack("<Q", struct.pack("<d", near))[0] & _REST == _HALF
    ):
        # Rounded to 64 bits first, it would seem to lie half-way.
        near = nextafter(near, float("inf") if value > near else float("-inf"))
    return float32(near)


_REST, _HALF = (1 << 29) - 1, 1 << 28
"""The bits of a float that a shorter one lacks, and which of them are set half-way between two."""


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def raise_overflow(value: object, type: str) -> NoReturn:
    """Raise for a result out of range of its type.

    The error's fact `beyond_years` is whether Spark has the value: a time outside the years 1 to 9999.
    """
    years = type in ("date", "timestamp")
    raise EvaluationError(f"overflow: {value} does not fit {type}", beyond_years=years)


def utf8(text: str) -> bytes:
    """Encode a text as UTF-8. Raises for lone surrogates, which only Python strings can contain."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = text[error.start]
        raise EvaluationError(
            f"a text holds {half!r}, half of a character, and has no bytes",
            fix="replace it where the rows are made: text.encode(errors='replace').decode()",
        ) from None


def raise_zero_division() -> NoReturn:
    """Raise for a division by zero."""
    raise EvaluationError("division by zero")


EXACT = Context(prec=400, rounding=ROUND_HALF_UP, traps=[InvalidOperation, Overflow, Inexact])
WIDE = Context(prec=400, rounding=ROUND_HALF_UP, traps=[InvalidOperation, Overflow])
# Spark multiplies with 39 significant digits and divides to 39 digits after the point
# before it rounds to the result's scale; rounding twice can differ from rounding once.
_MULTIPLY = Context(prec=39, rounding=ROUND_HALF_UP, traps=[InvalidOperation, Overflow])
_QUOTIENT_DIGITS = 39


@dataclass(frozen=True, slots=True)
class DecimalSpec:
    """Decimal type prepared for arithmetic: its unit and its bound."""

    type: DecimalType
    step: Decimal
    bound: Decimal

    @classmethod
    def of(cls, type: DecimalType) -> DecimalSpec:
        return cls(type, Decimal((0, (1,), -type.scale)), Decimal(10) ** (type.precision - type.scale))


def round_to_scale(value: Decimal, shape: DecimalSpec) -> Decimal:
    """Round `value` to the scale. Raises `EvaluationError` if it has too many digits."""
    rounded = WIDE.quantize(value, shape.step)
    if not -shape.bound < rounded < shape.bound:
        raise_overflow(value, str(shape.type))
    return rounded or abs(rounded)


def add(a: Decimal, b: Decimal, shape: DecimalSpec) -> Decimal:
    return round_to_scale(EXACT.add(a, b), shape)


def subtract(a: Decimal, b: Decimal, shape: DecimalSpec) -> Decimal:
    return round_to_scale(EXACT.subtract(a, b), shape)


def multiply(a: Decimal, b: Decimal, shape: DecimalSpec) -> Decimal:
    return round_to_scale(_MULTIPLY.multiply(a, b), shape)


def divide(a: Decimal, b: Decimal, shape: DecimalSpec) -> Decimal:
    if not b:
        raise_zero_division()
    # Unscaled integers give the exact quotient, so that it is rounded once, half up, at 39 digits.
    top, bottom = a.scaleb(76, WIDE), b.scaleb(76 - _QUOTIENT_DIGITS, WIDE)
    quotient, rest = divmod(abs(int(top)), abs(int(bottom)))
    if 2 * rest >= abs(int(bottom)):
        quotient += 1
    value = WIDE.scaleb(Decimal(quotient), -_QUOTIENT_DIGITS)
    # Not `-value`, which would round to the digits of the caller's context.
    return round_to_scale(value.copy_negate() if (a < 0) != (b < 0) else value, shape)


def round_half_up(value: Decimal, digits: int) -> Decimal:
    """Round half away from zero to `digits` after the point, or before it if negative."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "value is finite"
    # Both decided without a quantum, which has as many digits as are asked for.
    if -exponent <= digits:
        return value
    if value.adjusted() + 1 < -digits:
        return Decimal(0)
    return WIDE.quantize(value, Decimal((0, (1,), -digits)))


def remainder(a: Decimal, b: Decimal, shape: DecimalSpec) -> Decimal:
    if not b:
        raise_zero_division()
    return round_to_scale(WIDE.remainder(a, b), shape)


def positive_remainder(a: Decimal, b: Decimal, shape: DecimalSpec) -> Decimal:
    if not b:
        raise_zero_division()
    rest = WIDE.remainder(a, b)
    return round_to_scale(WIDE.remainder(WIDE.add(rest, b), b) if rest < 0 else rest, shape)


def absolute(a: Decimal) -> Decimal:
    return a.copy_abs()


def negate(a: Decimal) -> Decimal:
    return a.copy_negate() if a else a


def from_float(value: float, shape: DecimalSpec) -> Decimal | None:
    """Convert a float to its shortest decimal, rounded to the scale; NaN and infinities to None, as Spark."""
    if value - value != 0.0:
        return None
    return round_to_scale(Decimal(repr(value)), shape)


def from_int(value: int, shape: DecimalSpec) -> Decimal:
    return round_to_scale(Decimal(value), shape)


NAMES: dict[str, Any] = {
    "x_utf8": utf8,
    "x_nan": NAN,
    "x_f32": float32,
    "x_f32_of_exact": float32_of_exact,
    "x_epoch": EPOCH,
    "x_overflow": raise_overflow,
    "x_zero_division": raise_zero_division,
    "x_exact_add": EXACT.add,
    "x_exact_subtract": EXACT.subtract,
    "x_exact_multiply": EXACT.multiply,
    "x_decimal_add": add,
    "x_decimal_subtract": subtract,
    "x_decimal_multiply": multiply,
    "x_decimal_divide": divide,
    "x_decimal_modulo": remainder,
    "x_decimal_pmod": positive_remainder,
    "x_decimal_abs": absolute,
    "x_decimal_negate": negate,
    "x_decimal_fit": round_to_scale,
    "x_decimal_of_float": from_float,
    "x_decimal_of_int": from_int,
}
