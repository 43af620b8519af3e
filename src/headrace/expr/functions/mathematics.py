"""Mathematical functions of floats, and of bits.

Their values come from the mathematics library of the machine, Spark's from Java's: the last digit may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial
from typing import Any

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import NAN, raise_overflow
from headrace.expr.decimal_arithmetic import WIDE, DecimalSpec, round_to_scale
from headrace.expr.function_bases import Emitter, FixedFunction, StrictFunction, fitting_type, fixed
from headrace.expr.functions.arithmetic import decimal_spec, in_bits
from headrace.expr.functions.numbers import rounding_rule
from headrace.expr.types import FLOAT64, INT8, INT32, INT64, INTEGERS, RANGES, DecimalType, IntegerType
from headrace.expr.typing_rules import NULL, Arguments, CallTerm, Function, Signature
from headrace.expr.widening import common_type, is_float

_INT64_DIGITS = 19


def _guarded(function: Callable[[float], float], value: float) -> float:
    """Return NaN outside of the domain, infinity beyond the greatest float."""
    try:
        return function(value)
    except ValueError:
        return NAN
    except OverflowError:
        return math.inf


def logarithm(function: Callable[[float], float], least: float, value: float) -> float | None:
    """Return a logarithm; None from its asymptote on."""
    return None if value <= least else function(value)


def log_of(base: float, value: float) -> float | None:
    """Return the logarithm to a base; None unless both are positive."""
    if base <= 0 or value <= 0:
        return None
    below, above = math.log(base), math.log(value)
    if below:
        return above / below
    return NAN if above != above or not above else math.copysign(math.inf, above)


def power(base: float, exponent: float) -> float:
    # Java differs from C: one to the power of NaN is NaN, and so is one to that of infinity.
    if exponent != exponent or (abs(base) == 1.0 and abs(exponent) == math.inf):
        return NAN
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        if base:
            return NAN
        return -math.inf if math.copysign(1.0, base) < 0 and exponent % 2 == 1 else math.inf


def sinh(value: float) -> float:
    try:
        return math.sinh(value)
    except OverflowError:
        return math.copysign(math.inf, value)


def inverse(function: Callable[[float], float], value: float) -> float:
    divisor = _guarded(function, value)
    return 1.0 / divisor if divisor else math.copysign(math.inf, divisor)


def atanh(value: float) -> float:
    return math.copysign(math.inf, value) if abs(value) == 1.0 else _guarded(math.atanh, value)


def round_to_even(value: float) -> float:
    return math.copysign(float(round(value)), value) if value - value == 0.0 else value


def factorial(value: int) -> int | None:
    return math.factorial(value) if 0 <= value <= 20 else None


def width_bucket(value: float, low: float, high: float, count: int) -> int | None:
    """Return the number of the bucket of equal width that a value is in.

    0 is below the first, one more than `count` above the last.     None for no range or no buckets.
    """
    bounds = (value, low, high)
    infinite = any(bound - bound != 0.0 for bound in (low, high))
    if count <= 0 or count == 2**63 - 1 or any(b != b for b in bounds) or infinite or low == high:
        return None
    if low > high:
        value, low, high = -value, -low, -high
    if value < low:
        return 0
    return count + 1 if value >= high else int(count * (value - low) / (high - low)) + 1


def bit_at(value: int, place: int, bits: int) -> int:
    """Return a bit of an integer, counted from the last one, 0. Raises beyond its width."""
    if not 0 <= place < bits:
        raise EvaluationError(f"there is no bit {place} of {bits}")
    return value >> place & 1


def shift_left(value: int, by: int, bits: int) -> int:
    return _wrapped(value << (by & bits - 1), bits)


def shift_right(value: int, by: int, bits: int) -> int:
    return value >> (by & bits - 1)


def shift_right_unsigned(value: int, by: int, bits: int) -> int:
    return _wrapped((value & (1 << bits) - 1) >> (by & bits - 1), bits)


def _wrapped(value: int, bits: int) -> int:
    kept = value & (1 << bits) - 1
    return kept - (1 << bits) if kept >> bits - 1 else kept


# -- half to even ---------------------------------------------------------------------------------


def bround_float(value: float, digits: int) -> float:
    if value - value != 0.0:
        return value
    return float(_half_even(Decimal(repr(value)), digits)) + 0.0


def bround_int(value: int, digits: int, greatest: int) -> int:
    """Round half to even to tens, hundreds, and so on. Raises beyond `greatest`."""
    if digits > _INT64_DIGITS:
        return 0
    rounded = int(_half_even(Decimal(value), -digits))
    if not -greatest - 1 <= rounded <= greatest:
        raise_overflow(rounded, "int32" if greatest < 2**31 else "int64")
    return rounded


def bround_decimal(value: Decimal, digits: int, shape: DecimalSpec) -> Decimal:
    return round_to_scale(_half_even(value, digits), shape)


def _half_even(value: Decimal, digits: int) -> Decimal:
    whole = value.scaleb(digits, WIDE)
    return whole.to_integral_value(ROUND_HALF_EVEN, WIDE).scaleb(-digits, WIDE)


def _bround(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    (a,), (digits,) = operands, call.options
    assert isinstance(digits, int)
    if isinstance(call.type, DecimalType):
        return f"x_bround_decimal({a}, {digits}, {emitter.constant(decimal_spec(call.type))})"
    if is_float(call.type):
        return in_bits(call.type, f"x_bround_float({a}, {digits})")
    return a if digits >= 0 else f"x_bround_int({a}, {-digits}, {RANGES[call.type][1]})"


# -- the catalogue ----------------------------------------------------------------------------------

_OF_ONE: dict[str, tuple[str, Callable[[float], float]]] = {
    "exp": ("e to the power of the number.", partial(_guarded, math.exp)),
    "expm1": ("e to the power of the number, minus 1.", partial(_guarded, math.expm1)),
    "cbrt": ("Cube root.", math.cbrt),
    "sin": ("Sine of an angle in radians.", partial(_guarded, math.sin)),
    "cos": ("Cosine of an angle in radians.", partial(_guarded, math.cos)),
    "tan": ("Tangent of an angle in radians.", partial(_guarded, math.tan)),
    "cot": ("Cotangent of an angle in radians.", partial(inverse, math.tan)),
    "sec": ("Secant of an angle in radians.", partial(inverse, math.cos)),
    "csc": ("Cosecant of an angle in radians.", partial(inverse, math.sin)),
    "asin": ("Angle, in radians, of a sine.", partial(_guarded, math.asin)),
    "acos": ("Angle, in radians, of a cosine.", partial(_guarded, math.acos)),
    "atan": ("Angle, in radians, of a tangent.", math.atan),
    "sinh": ("Hyperbolic sine.", sinh),
    "cosh": ("Hyperbolic cosine.", partial(_guarded, math.cosh)),
    "tanh": ("Hyperbolic tangent.", math.tanh),
    "asinh": ("Inverse hyperbolic sine.", math.asinh),
    "acosh": ("Inverse hyperbolic cosine.", partial(_guarded, math.acosh)),
    "atanh": ("Inverse hyperbolic tangent.", atanh),
}
_LOGARITHMS: dict[str, tuple[str, Callable[[float], float | None]]] = {
    "ln": ("Natural logarithm; null unless positive.", partial(logarithm, math.log, 0.0)),
    "log10": ("Logarithm to base 10; null unless positive.", partial(logarithm, math.log10, 0.0)),
    "log2": ("Logarithm to base 2; null unless positive.", partial(logarithm, math.log2, 0.0)),
    "log1p": (
        "Natural logarithm of the number plus 1; null at -1 and below.",
        partial(logarithm, math.log1p, -1.0),
    ),
}

NAMES: dict[str, Any] = {
    **{f"x_{name}": function for name, (_, function) in (_OF_ONE | _LOGARITHMS).items()},
    "x_atan2": math.atan2,
    "x_bround_decimal": bround_decimal,
    "x_bround_float": bround_float,
    "x_bround_int": bround_int,
    "x_factorial": factorial,
    "x_hypot": math.hypot,
    "x_log": log_of,
    "x_power": power,
    "x_rint": round_to_even,
    "x_bit_at": bit_at,
    "x_shift_left": shift_left,
    "x_shift_right": shift_right,
    "x_shift_right_unsigned": shift_right_unsigned,
    "x_width_bucket": width_bucket,
}


def _of_one(name: str, meaning: str, nullable: bool) -> FixedFunction:
    return fixed(name, meaning, (FLOAT64,), FLOAT64, f"x_{name}({{0}})", approximate=True, nullable=nullable)


def _shift(name: str, meaning: str, runtime: str) -> FixedFunction:
    return fixed(name, meaning, ((INT32, INT64), INT32), None, f"{runtime}({{0}}, {{1}}, {{bits}})")


def _bit_at() -> FixedFunction:
    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        width = call.arguments[0].type
        assert isinstance(width, IntegerType)
        return f"x_bit_at({', '.join(operands)}, {width.bits})"

    meaning = "Bit at a position, from 0, the last one."
    return replace(fixed("getbit", meaning, (INTEGERS, INT32), INT8, "", fallible=True), python=python)


def _of_bits(name: str, meaning: str, source: str, takes: int = 2) -> FixedFunction:
    """Build a function of the bits of integers, which first widen to their common type."""

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        for each in arguments:
            fitting_type(name, each.type, INTEGERS)
        common = common_type(arguments)
        width = INT64 if common == NULL else common
        return Signature((width,) * takes, width)

    return replace(fixed(name, meaning, (INTEGERS,) * takes, None, source), rule=rule)


FUNCTIONS: tuple[Function, ...] = (
    *(_of_one(name, meaning, False) for name, (meaning, _) in _OF_ONE.items()),
    *(_of_one(name, meaning, True) for name, (meaning, _) in _LOGARITHMS.items()),
    StrictFunction("bround", rounding_rule("bround"), _bround, lambda call: not is_float(call.type)),
    fixed(
        "log",
        "Logarithm of the second number to the base of the first; null unless both are positive.",
        (FLOAT64, FLOAT64),
        FLOAT64,
        "x_log({0}, {1})",
        approximate=True,
        nullable=True,
    ),
    fixed(
        "power",
        "The first number to the power of the second.",
        (FLOAT64, FLOAT64),
        FLOAT64,
        "x_power({0}, {1})",
        approximate=True,
    ),
    fixed(
        "atan2",
        "Angle, in radians, of the point (x, y), given as y, x.",
        (FLOAT64, FLOAT64),
        FLOAT64,
        "x_atan2({0} + 0.0, {1} + 0.0)",  # no zero is negative
        approximate=True,
    ),
    fixed(
        "hypot",
        "Length of the hypotenuse.",
        (FLOAT64, FLOAT64),
        FLOAT64,
        "x_hypot({0}, {1})",
        approximate=True,
    ),
    fixed(
        "radians",
        "An angle in degrees, converted to radians.",
        (FLOAT64,),
        FLOAT64,
        "({0} * 0.017453292519943295)",
    ),
    fixed("rint", "Nearest whole number, half to even.", (FLOAT64,), FLOAT64, "x_rint({0})"),
    fixed(
        "factorial",
        "Factorial; null below 0 and above 20.",
        (INT32,),
        INT64,
        "x_factorial({0})",
        nullable=True,
    ),
    fixed(
        "width_bucket",
        "Number of the bucket of a value, among equal buckets between two bounds.",
        (FLOAT64, FLOAT64, FLOAT64, INT64),
        INT64,
        "x_width_bucket({0}, {1}, {2}, {3})",
        nullable=True,
    ),
    _of_bits("bitwise_and", "Bits set in both.", "({0} & {1})"),
    _of_bits("bitwise_or", "Bits set in either.", "({0} | {1})"),
    _of_bits("bitwise_xor", "Bits set in exactly one.", "({0} ^ {1})"),
    _of_bits("bitwise_not", "All bits inverted.", "(~{0})", takes=1),
    _bit_at(),
    _shift("shiftleft", "Bits shifted left.", "x_shift_left"),
    _shift("shiftright", "Bits shifted right, with the sign preserved.", "x_shift_right"),
    _shift("shiftrightunsigned", "Bits shifted right, filled with zeros.", "x_shift_right_unsigned"),
)
