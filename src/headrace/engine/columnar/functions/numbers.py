"""Rounding, roots, signs and bits of numbers. The functions of the mathematics library stay in rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import polars as pl

from headrace.engine.columnar.functions import decimals
from headrace.engine.columnar.functions.casts import PLACES, shortest_decimal
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    bounds_of,
    constant_value,
    dtype_of,
    lower_bounded_integer,
)
from headrace.expr.types import FLOAT64, INT32, INT64, RANGES, DecimalType, IntegerType, IntervalType
from headrace.expr.typing_rules import CallTerm
from headrace.expr.widening import is_float

Arguments = Sequence[LoweredExpression]
_INT64_DIGITS = 19


def _digits_of(call: CallTerm) -> int:
    (digits,) = call.options
    assert isinstance(digits, int)
    return digits


def _rounded(*, even: bool) -> Lowering:
    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        if isinstance(call.type, DecimalType):
            return (decimals.round_half_even if even else decimals.round_half_up)(call, arguments)
        if is_float(call.type):
            return _rounded_float(call, arguments, even=even)
        return _rounded_integer(call, arguments, even=even)

    return lowering


def _rounded_integer(call: CallTerm, arguments: Arguments, *, even: bool) -> LoweredExpression:
    (a,), digits = arguments, -_digits_of(call)
    if digits <= 0:
        return a
    low, high = RANGES[call.type]
    if digits > _INT64_DIGITS:
        value = pl.when(a.value.is_not_null()).then(pl.lit(0, dtype=dtype_of(call.type)))
        return LoweredExpression(value, (0, 0))
    wide = LoweredExpression(a.value.cast(pl.Int128), bounds_of(a))
    made = decimals.lengthened(decimals.divided(wide, digits, even=even), digits)
    least, most = bounds_of(made)
    narrow = made.value.cast(dtype_of(call.type), strict=False)
    # A number that is rounded to the least one of its type raises, unless half to even.
    first = low if even else low + 1
    return lower_bounded_integer(
        narrow, (least, most) if least >= first else (low - 1, most), call.type,
        lambda: (made.value < first) | (made.value > high),
    )  # fmt: skip


def _rounded_float(call: CallTerm, arguments: Arguments, *, even: bool) -> LoweredExpression:
    (a,), digits = arguments, _digits_of(call)
    if call.type != FLOAT64 or not 0 <= digits <= PLACES:
        raise NotLowered(f"{call.function.name}() of a {call.type} to {digits} digits has no columnar form")
    # By the shortest decimal, as in rows; what is not finite stays.
    short = decimals.divided(shortest_decimal(a.value), PLACES - digits, even=even)
    made = decimals.float_of(short, digits)
    value = pl.when(a.value.is_finite()).then(made.value).otherwise(a.value)
    fails = None if made.fails is None else made.fails & a.value.is_finite()
    return LoweredExpression(value, None, fails)


def _float(of: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    return lambda call, arguments: LoweredExpression(of(arguments[0].value))


def _square_root(value: pl.Expr) -> pl.Expr:
    return pl.when(value >= 0).then(value.sqrt()).when(value.is_not_null()).then(float("nan"))


def _sign(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    value = arguments[0].value
    if isinstance(call.arguments[0].type, IntervalType):
        return LoweredExpression(value.to_physical().sign().cast(pl.Float64))
    one = pl.when(value > 0).then(1.0).otherwise(-1.0)
    return LoweredExpression(
        pl.when(value.is_nan() | (value == 0) | value.is_null()).then(value).otherwise(one)
    )


# -- bits --------------------------------------------------------------------------------------


def _of_bits(of: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        one, other = (a.value for a in arguments)
        return LoweredExpression(of(one, other), RANGES[call.type])

    return lowering


def _inverted(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    return LoweredExpression(-1 - arguments[0].value, RANGES[call.type])


def _shifted(call: CallTerm, arguments: Arguments) -> LoweredExpression:
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


def _bit_at(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    width = call.arguments[0].type
    assert isinstance(width, IntegerType)
    place = constant_value(call.arguments[1])
    if not isinstance(place, int) or not 0 <= place < width.bits:
        raise NotLowered("getbit() has a columnar form only for a constant place within the bits")
    bit = arguments[0].value.cast(pl.Int128) // pl.lit(1 << place, dtype=pl.Int128()) % 2
    return LoweredExpression(bit.cast(pl.Int8), (0, 1))


def _pmod(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    if isinstance(call.type, DecimalType):
        return decimals.pmod(call, arguments)
    if is_float(call.type):
        raise NotLowered("pmod() of floats has no columnar form")
    (_, _), (bl, bh) = map(bounds_of, arguments)
    if bl <= 0:
        raise NotLowered("pmod() has a columnar form only by divisors that are known to be positive")
    # The rest of Polars has the sign of the divisor.
    a, b = (one.value.cast(pl.Int64) for one in arguments)
    return LoweredExpression((a % b).cast(dtype_of(call.type)), (0, bh - 1))


def _factorial(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    value, made = arguments[0].value, 1
    steps: list[pl.Expr] = []
    for number in range(21):
        made = made * max(number, 1)
        steps.append(pl.when(value == number).then(pl.lit(made, dtype=pl.Int64())))
    return LoweredExpression(pl.coalesce(steps), (1, made))


LOWERINGS: Mapping[str, Lowering] = {
    "round": _rounded(even=False),
    "bround": _rounded(even=True),
    "sqrt": _float(_square_root),
    "signum": _sign,
    "degrees": _float(lambda value: value * 57.29577951308232),
    "radians": _float(lambda value: value * 0.017453292519943295),
    "factorial": _factorial,
    "bit_count": lambda call, arguments: LoweredExpression(
        arguments[0].value.bitwise_count_ones().cast(pl.Int32), (0, 64)
    ),
    "bitwise_and": _of_bits(lambda a, b: a & b),
    "bitwise_or": _of_bits(lambda a, b: a | b),
    "bitwise_xor": _of_bits(lambda a, b: a ^ b),
    "bitwise_not": _inverted,
    "getbit": _bit_at,
    "shiftleft": _shifted,
    "shiftright": _shifted,
    "shiftrightunsigned": _shifted,
    "pmod": _pmod,
}
