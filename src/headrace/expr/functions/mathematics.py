"""Mathematical functions of floats, and of the bits of integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import NAN
from headrace.expr.function_records import fitting_type, function, of_spark_column, of_spark_columns
from headrace.expr.polars_columns import LoweredExpression, Lowering, NotLowered, constant_value, dtype_of
from headrace.expr.types import FLOAT64, INT8, INT32, INT64, INTEGERS, RANGES, IntegerType
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    Signature,
    SparkForm,
    common_type,
)
from headrace.requirements import F, pl


def _guarded(function: Callable[[float], float], value: float) -> float:
    """Apply a function: NaN outside of its domain, infinity on overflow."""
    try:
        return function(value)
    except ValueError:
        return NAN
    except OverflowError:
        return math.inf


def logarithm(function: Callable[[float], float], least: float, value: float) -> float | None:
    """Return a logarithm; None at or below its asymptote."""
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
    """Return the number of the equal-width bucket that contains a value.

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

if TYPE_CHECKING:
    pass


BITMAP_BITS = 32_768
"""Bits of a bitmap of Spark's, 4 KiB."""


def bit_at(value: int, place: int, bits: int) -> int:
    """Return a bit of an integer, numbered from 0, the least significant. Raises beyond its width."""
    if not 0 <= place < bits:
        raise EvaluationError(f"there is no bit {place} of {bits}")
    return value >> place & 1


def bitmap_bucket(number: int) -> int:
    """Return the number of the 32,768-bit bitmap of a number: 1 for 1 to 32,768, and 0 for 0."""
    return 1 + (number - 1) // BITMAP_BITS if number > 0 else -(-number // BITMAP_BITS)


def bitmap_bit(number: int) -> int:
    """Return the position of a number in its bitmap, from 0."""
    return (number - 1) % BITMAP_BITS if number > 0 else -number % BITMAP_BITS


def shift_left(value: int, by: int, bits: int) -> int:
    return _wrapped(value << (by & bits - 1), bits)


def shift_right(value: int, by: int, bits: int) -> int:
    return value >> (by & bits - 1)


def shift_right_unsigned(value: int, by: int, bits: int) -> int:
    return _wrapped((value & (1 << bits) - 1) >> (by & bits - 1), bits)


def _wrapped(value: int, bits: int) -> int:
    kept = value & (1 << bits) - 1
    return kept - (1 << bits) if kept >> bits - 1 else kept


def _shift(name: str, meaning: str, runtime: str, catalyst: str, example: str) -> Function:
    return function(
        name,
        meaning,
        ((INT32, INT64), INT32),
        None,
        f"{runtime}({{all}}, {{bits}})",
        example=example,
        catalyst=catalyst,
        columns=_shifted_columns,
    )


def _bit_at(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    width = call.arguments[0].type
    assert isinstance(width, IntegerType)
    return f"x_bit_at({', '.join(operands)}, {width.bits})"


# -- on columns -------------------------------------------------------------------------------


def _of_bits_columns(of: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        one, other = (a.value for a in arguments)
        return LoweredExpression(of(one, other), RANGES[call.type])

    return lowering


def _inverted_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    return LoweredExpression(-1 - arguments[0].value, RANGES[call.type])


def _shifted_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    """Shift by a constant number of places, by multiplying or dividing by a power of two."""
    by = constant_value(call.arguments[1])
    if not isinstance(by, int) or call.type not in (INT32, INT64):
        raise NotLowered(f"{call.function.name}() has a columnar form only for a constant number of places")
    assert isinstance(call.type, IntegerType)
    bits = call.type.bits
    by &= bits - 1
    unsigned = pl.UInt32() if bits == 32 else pl.UInt64()
    value, power = arguments[0].value, pl.lit(1 << by, dtype=unsigned)
    if call.function.name == "shiftright":
        made = (value.cast(pl.Int128) // pl.lit(1 << by, dtype=pl.Int128())).cast(dtype_of(call.type))
    elif call.function.name == "shiftleft":
        made = (value.reinterpret(dtype=unsigned) * power).reinterpret(dtype=dtype_of(call.type))
    else:
        made = (value.reinterpret(dtype=unsigned) // power).reinterpret(dtype=dtype_of(call.type))
    return LoweredExpression(made, RANGES[call.type])


def _bit_at_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    width = call.arguments[0].type
    assert isinstance(width, IntegerType)
    place = constant_value(call.arguments[1])
    if not isinstance(place, int) or not 0 <= place < width.bits:
        raise NotLowered("getbit() has a columnar form only for a constant place within the bits")
    bit = arguments[0].value.cast(pl.Int128) // pl.lit(1 << place, dtype=pl.Int128()) % 2
    return LoweredExpression(bit.cast(pl.Int8), (0, 1))


def _of_bits(
    name: str,
    meaning: str,
    source: str,
    catalyst: str,
    columns: Lowering,
    spark: SparkForm,
    *,
    takes: int = 2,
) -> Function:
    """Build a bitwise function of integers, which are first widened to their common type."""

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        for each in arguments:
            fitting_type(name, each.type, INTEGERS)
        common = common_type(arguments)
        width = INT64 if common == NULL else common
        return Signature((width,) * takes, width)

    return function(
        name,
        meaning,
        (INTEGERS,) * takes,
        None,
        source,
        types=rule,
        shown_parameters=", ".join(("integer",) * takes),
        example="6, 3" if takes == 2 else "5",
        catalyst=catalyst,
        columns=columns,
        spark=spark,
    )


NAMES: dict[str, Any] = {
    "x_atan2": math.atan2,
    "x_bit_at": bit_at,
    "x_shift_left": shift_left,
    "x_shift_right": shift_right,
    "x_shift_right_unsigned": shift_right_unsigned,
}

BIT_FUNCTIONS: tuple[Function, ...] = (
    function(
        "bit_count",
        "Number of set bits.",
        (INT64,),
        INT32,
        "({0} & 0xFFFFFFFFFFFFFFFF).bit_count()",
        example="7",
        catalyst="BitwiseCount",
        columns=lambda call, arguments: LoweredExpression(
            arguments[0].value.bitwise_count_ones().cast(pl.Int32), (0, 64)
        ),
    ),
    _of_bits(
        "bitwise_and",
        "Bits set in both.",
        "({0} & {1})",
        "BitwiseAnd",
        _of_bits_columns(lambda a, b: a & b),
        of_spark_columns(lambda a, b: a.bitwiseAND(b)),
    ),
    _of_bits(
        "bitwise_or",
        "Bits set in either.",
        "({0} | {1})",
        "BitwiseOr",
        _of_bits_columns(lambda a, b: a | b),
        of_spark_columns(lambda a, b: a.bitwiseOR(b)),
    ),
    _of_bits(
        "bitwise_xor",
        "Bits set in exactly one.",
        "({0} ^ {1})",
        "BitwiseXor",
        _of_bits_columns(lambda a, b: a ^ b),
        of_spark_columns(lambda a, b: a.bitwiseXOR(b)),
    ),
    _of_bits(
        "bitwise_not",
        "All bits inverted.",
        "(~{0})",
        "BitwiseNot",
        _inverted_columns,
        of_spark_column(lambda a: F.bitwise_not(a)),
        takes=1,
    ),
    function(
        "getbit",
        "Bit at a position, from 0, the last one.",
        (INTEGERS, INT32),
        INT8,
        code=_bit_at,
        fallible=True,
        example="5, 2",
        catalyst="BitwiseGet",
        columns=_bit_at_columns,
    ),
    _shift("shiftleft", "Bits shifted left.", "x_shift_left", "ShiftLeft", "1, 3"),
    _shift(
        "shiftright", "Bits shifted right, with the sign preserved.", "x_shift_right", "ShiftRight", "-8, 1"
    ),
    _shift(
        "shiftrightunsigned",
        "Bits shifted right, filled with zeros.",
        "x_shift_right_unsigned",
        "ShiftRightUnsigned",
        "8, 1",
    ),
    function(
        "bitmap_bucket_number",
        "Number of the bitmap of 32,768 bits that has the bit of an integer.",
        (INT64,),
        INT64,
        bitmap_bucket,
        example="40000",
        catalyst="BitmapExpressionUtils.bitmapBucketNumber",
    ),
    function(
        "bitmap_bit_position",
        "Position of the bit of an integer in its bitmap, from 0.",
        (INT64,),
        INT64,
        bitmap_bit,
        example="40000",
        catalyst="BitmapExpressionUtils.bitmapBitPosition",
    ),
)
