"""Functions of the bits of integers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.errors import EvaluationError
from headrace.expr.code_emission import Emitter
from headrace.expr.deferred_imports import F, pl
from headrace.expr.function_records import (
    fitting_type,
    function,
    of_spark_column,
    of_spark_columns,
)
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    constant_value,
    dtype_of,
)
from headrace.expr.types import (
    INT8,
    INT32,
    INT64,
    INTEGERS,
    RANGES,
    IntegerType,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Function,
    Signature,
    SparkForm,
    common_type,
)

if TYPE_CHECKING:
    pass


BITMAP_BITS = 32_768
"""Bits of a bitmap of Spark's, 4 KiB."""


def bit_at(value: int, place: int, bits: int) -> int:
    """Return a bit of an integer, counted from the last one, 0. Raises beyond its width."""
    if not 0 <= place < bits:
        raise EvaluationError(f"there is no bit {place} of {bits}")
    return value >> place & 1


def bitmap_bucket(number: int) -> int:
    """Return the bitmap of 32,768 bits that holds a number: 1 holds 1 to 32,768, and 0 the 0."""
    return 1 + (number - 1) // BITMAP_BITS if number > 0 else -(-number // BITMAP_BITS)


def bitmap_bit(number: int) -> int:
    """Return the place of a number within its bitmap, from 0."""
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
    """Shift by a constant number of places, as a product or a quotient by a power of two."""
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
    """Build a function of the bits of integers, which first widen to their common type."""

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
    "x_bit_at": bit_at,
    "x_shift_left": shift_left,
    "x_shift_right": shift_right,
    "x_shift_right_unsigned": shift_right_unsigned,
}

FUNCTIONS: tuple[Function, ...] = (
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
