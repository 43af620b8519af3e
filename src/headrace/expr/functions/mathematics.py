"""Mathematical functions of floats, and of bits.

Their values come from the mathematics library of the machine, Spark's from Java's: the last digit may differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from headrace.expr.code_runtime import NAN
from headrace.expr.deferred_imports import pl
from headrace.expr.function_records import function
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
)
from headrace.expr.types import (
    FLOAT64,
    INT32,
    INT64,
)
from headrace.expr.typing_rules import (
    CallTerm,
    Function,
)


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


# -- the catalogue ----------------------------------------------------------------------------------


def square_root(value: float) -> float:
    return math.sqrt(value) if value >= 0 else NAN


# -- on columns -------------------------------------------------------------------------------


def _float_columns(of: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    return lambda call, arguments: LoweredExpression(of(arguments[0].value))


def _square_root_columns(value: pl.Expr) -> pl.Expr:
    return pl.when(value >= 0).then(value.sqrt()).when(value.is_not_null()).then(float("nan"))


def _factorial_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    value, made = arguments[0].value, 1
    steps: list[pl.Expr] = []
    for number in range(21):
        made = made * max(number, 1)
        steps.append(pl.when(value == number).then(pl.lit(made, dtype=pl.Int64())))
    return LoweredExpression(pl.coalesce(steps), (1, made))


NAMES: dict[str, Any] = {
    "x_atan2": math.atan2,
}


def _of_one(
    name: str,
    meaning: str,
    rows: Callable[[float], float | None],
    catalyst: str,
    *,
    example: str = "1.0",
    nullable: bool = False,
) -> Function:
    return function(
        name,
        meaning,
        (FLOAT64,),
        FLOAT64,
        rows,
        approximate=True,
        nullable=nullable,
        example=example,
        catalyst=catalyst,
    )


FUNCTIONS: tuple[Function, ...] = (
    _of_one("exp", "e to the power of the number.", partial(_guarded, math.exp), "Exp"),
    _of_one("expm1", "e to the power of the number, minus 1.", partial(_guarded, math.expm1), "Expm1"),
    _of_one("cbrt", "Cube root.", math.cbrt, "Cbrt", example="27.0"),
    _of_one("sin", "Sine of an angle in radians.", partial(_guarded, math.sin), "Sin"),
    _of_one("cos", "Cosine of an angle in radians.", partial(_guarded, math.cos), "Cos"),
    _of_one("tan", "Tangent of an angle in radians.", partial(_guarded, math.tan), "Tan"),
    _of_one("cot", "Cotangent of an angle in radians.", partial(inverse, math.tan), "Cot"),
    _of_one("sec", "Secant of an angle in radians.", partial(inverse, math.cos), "Sec"),
    _of_one("csc", "Cosecant of an angle in radians.", partial(inverse, math.sin), "Csc"),
    _of_one("asin", "Angle, in radians, of a sine.", partial(_guarded, math.asin), "Asin"),
    _of_one("acos", "Angle, in radians, of a cosine.", partial(_guarded, math.acos), "Acos", example="0.5"),
    _of_one("atan", "Angle, in radians, of a tangent.", math.atan, "Atan"),
    _of_one("sinh", "Hyperbolic sine.", sinh, "Sinh"),
    _of_one("cosh", "Hyperbolic cosine.", partial(_guarded, math.cosh), "Cosh"),
    _of_one("tanh", "Hyperbolic tangent.", math.tanh, "Tanh"),
    _of_one("asinh", "Inverse hyperbolic sine.", math.asinh, "Asinh"),
    _of_one("acosh", "Inverse hyperbolic cosine.", partial(_guarded, math.acosh), "Acosh", example="2.0"),
    _of_one("atanh", "Inverse hyperbolic tangent.", atanh, "Atanh", example="0.5"),
    _of_one(
        "ln",
        "Natural logarithm; null unless positive.",
        partial(logarithm, math.log, 0.0),
        "Log",
        nullable=True,
    ),
    _of_one(
        "log10",
        "Logarithm to base 10; null unless positive.",
        partial(logarithm, math.log10, 0.0),
        "Log10",
        example="100.0",
        nullable=True,
    ),
    _of_one(
        "log2",
        "Logarithm to base 2; null unless positive.",
        partial(logarithm, math.log2, 0.0),
        "Log2",
        example="8.0",
        nullable=True,
    ),
    _of_one(
        "log1p",
        "Natural logarithm of the number plus 1; null at -1 and below.",
        partial(logarithm, math.log1p, -1.0),
        "Log1p",
        nullable=True,
    ),
    function(
        "log",
        "Logarithm of the second number to the base of the first; null unless both are positive.",
        (FLOAT64, FLOAT64),
        FLOAT64,
        log_of,
        approximate=True,
        nullable=True,
        example="2.0, 8.0",
        catalyst="Logarithm",
    ),
    function(
        "power",
        "The first number to the power of the second.",
        (FLOAT64, FLOAT64),
        FLOAT64,
        power,
        approximate=True,
        example="2.0, 10.0",
        catalyst="Pow",
    ),
    function(
        "atan2",
        "Angle, in radians, of the point (x, y), given as y, x.",
        (FLOAT64, FLOAT64),
        FLOAT64,
        "x_atan2({0} + 0.0, {1} + 0.0)",
        approximate=True,
        example="1.0, 1.0",
        catalyst="Atan2",
    ),
    function(
        "hypot",
        "Length of the hypotenuse.",
        (FLOAT64, FLOAT64),
        FLOAT64,
        math.hypot,
        approximate=True,
        example="3.0, 4.0",
        catalyst="Hypot",
    ),
    function(
        "radians",
        "An angle in degrees, converted to radians.",
        (FLOAT64,),
        FLOAT64,
        "({0} * 0.017453292519943295)",
        example="180.0",
        catalyst="ToRadians",
        columns=_float_columns(lambda value: value * 0.017453292519943295),
    ),
    function(
        "rint",
        "Nearest whole number, half to even.",
        (FLOAT64,),
        FLOAT64,
        round_to_even,
        example="2.5",
        catalyst="Rint",
    ),
    function(
        "factorial",
        "Factorial; null below 0 and above 20.",
        (INT32,),
        INT64,
        factorial,
        nullable=True,
        example="5",
        catalyst="Factorial",
        columns=_factorial_columns,
    ),
    function(
        "width_bucket",
        "Number of the bucket of a value, among equal buckets between two bounds.",
        (FLOAT64, FLOAT64, FLOAT64, INT64),
        INT64,
        width_bucket,
        nullable=True,
        example="5.0, 0.0, 10.0, 4",
        catalyst="WidthBucket",
    ),
    function(
        "sqrt",
        "Square root; NaN for a negative number.",
        (FLOAT64,),
        FLOAT64,
        square_root,
        example="9.0",
        catalyst="Sqrt",
        columns=_float_columns(_square_root_columns),
    ),
    function(
        "degrees",
        "An angle in radians, converted to degrees.",
        (FLOAT64,),
        FLOAT64,
        "({0} * 57.29577951308232)",
        example="1.0",
        catalyst="ToDegrees",
        columns=_float_columns(lambda value: value * 57.29577951308232),
    ),
)
