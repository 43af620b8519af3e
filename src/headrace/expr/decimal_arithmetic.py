"""Decimal arithmetic for generated code: exact, then rounded half up to the result's scale."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal, Inexact, InvalidOperation, Overflow
from typing import Any

from headrace.expr.code_runtime import raise_overflow, raise_zero_division
from headrace.expr.types import DecimalType

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
