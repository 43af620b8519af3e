"""Rounding of numbers to digits and to whole numbers, on rows, columns and Spark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Decimal
from typing import TYPE_CHECKING, Any, Literal

from headrace.expr.code_runtime import WIDE, DecimalSpec, raise_overflow, round_half_up, round_to_scale
from headrace.expr.function_records import (
    function,
    is_digits,
)
from headrace.expr.functions import integer_columns
from headrace.expr.functions.arithmetic import (
    decimal_spec,
    in_bits,
)
from headrace.expr.functions.cast_columns import PLACES, shortest_decimal
from headrace.expr.functions.integer_columns import (
    SAFE_FLOAT,
)
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    bounds_of,
    dtype_of,
    lower_bounded_integer,
)
from headrace.expr.types import (
    FLOAT64,
    INT64,
    RANGES,
    DataType,
    DecimalType,
)
from headrace.expr.typing_rules import (
    MAX_PRECISION,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    Mismatch,
    Signature,
    exact_as_decimal,
    is_float,
    is_integer,
    is_number,
)
from headrace.requirements import F, pl

if TYPE_CHECKING:
    pass


def rounding_rule(what: str) -> Callable[[Arguments, tuple[object, ...]], Signature]:
    """Typing rule of rounding to the number of digits given as an option."""

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        (argument,), (digits,) = arguments, options
        assert isinstance(digits, int)
        if not is_number(argument.type):
            raise Mismatch(f"{what} needs a number, got {argument.type}")
        return Signature((argument.type,), _rounded_type(argument.type, digits))

    return rule


def _rounded_type(type: DataType, digits: int) -> DataType:
    if not isinstance(type, DecimalType):
        return type
    whole = type.precision - type.scale + 1
    if digits < 0:
        return DecimalType(min(max(whole, 1 - digits), MAX_PRECISION), 0)
    scale = min(type.scale, digits)
    return DecimalType(min(whole + scale, MAX_PRECISION), scale)


def _round(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    (a,), (digits,) = operands, call.options
    assert isinstance(digits, int)
    if isinstance(call.type, DecimalType):
        return f"x_round_decimal({a}, {digits}, {emitter.constant(decimal_spec(call.type))})"
    if is_float(call.type):
        return in_bits(call.type, f"x_round_float({a}, {digits})")
    return a if digits >= 0 else f"x_round_int({a}, {-digits}, {RANGES[call.type][1]})"


_INT64_DIGITS = 19


def round_float(value: float, digits: int) -> float:
    """Round half up, based on the shortest decimal representation of `value`."""
    if value - value != 0.0:
        return value
    # The intermediate decimals have no negative zero.
    return float(round_half_up(Decimal(repr(value)), digits)) + 0.0


def round_int(value: int, digits: int, greatest: int) -> int:
    """Round half up to tens, hundreds, and so on. Raises beyond `greatest`."""
    if digits > _INT64_DIGITS:
        return 0
    step = 10**digits
    rounded = (abs(value) + step // 2) // step * step
    if rounded > greatest:
        raise_overflow(rounded, f"int{greatest.bit_length() + 1}")
    return rounded if value >= 0 else -rounded


def round_decimal(value: Decimal, digits: int, shape: DecimalSpec) -> Decimal:
    return round_to_scale(round_half_up(value, digits), shape)


def _whole_rule(what: str) -> Callable[[Arguments, tuple[object, ...]], Signature]:
    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        (argument,) = arguments
        if isinstance(argument.type, DecimalType):
            precision, scale = argument.type.precision, argument.type.scale
            whole = precision - scale + 1 if scale else precision
            return Signature((argument.type,), DecimalType(whole, 0))
        if not is_number(argument.type):
            raise Mismatch(f"{what} needs a number, got {argument.type}")
        return Signature((FLOAT64 if is_float(argument.type) else INT64,), INT64)

    return rule


def _whole(name: str) -> Callable[[Emitter, CallTerm, tuple[str, ...]], str]:
    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        (a,) = operands
        source = call.arguments[0].type
        if isinstance(call.type, DecimalType):
            return f"x_{name}_decimal({a}, {emitter.constant(decimal_spec(call.type))})"
        return f"x_{name}({a})" if source == FLOAT64 else a

    return python


def _leaves_floats(call: CallTerm) -> bool:
    return not is_integer(call.arguments[0].type)


def _to_int64(value: float) -> int:
    # As Spark: NaN is 0.
    if value != value:
        return 0
    if not -(2.0**63) <= value < 2.0**63:
        raise_overflow(value, "int64")
    return int(value)


def floor_float(value: float) -> int:
    return _to_int64(math.floor(value) if value - value == 0.0 else value)


def ceil_float(value: float) -> int:
    return _to_int64(math.ceil(value) if value - value == 0.0 else value)


def floor_decimal(value: Decimal, shape: DecimalSpec) -> Decimal:
    return round_to_scale(Decimal(math.floor(value)), shape)


def ceil_decimal(value: Decimal, shape: DecimalSpec) -> Decimal:
    return round_to_scale(Decimal(math.ceil(value)), shape)


def _to_digits_rule(what: str) -> Callable[[Arguments, tuple[object, ...]], Signature]:
    """Typing rule of `floor` and `ceil` to a number of digits: decimals, and integers as such."""

    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        (argument,), (digits,) = arguments, options
        assert isinstance(digits, int)
        if not isinstance(argument.type, DecimalType) and not is_integer(argument.type):
            raise Mismatch(
                f"{what} to digits needs a decimal or an integer, got {argument.type}",
                fix=f"cast(DecimalType(30, 15)).{what}(digits)",
            )
        exact = argument.type if isinstance(argument.type, DecimalType) else exact_as_decimal(argument.type)
        return Signature((exact,), _rounded_type(exact, digits))

    return rule


def _to_digits(rounding: str) -> Callable[[Emitter, CallTerm, tuple[str, ...]], str]:
    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        (a,), (digits,) = operands, call.options
        assert isinstance(call.type, DecimalType)
        return f"x_round_towards({a}, {digits}, {emitter.constant(decimal_spec(call.type))}, {rounding!r})"

    return python


def round_towards(value: Decimal, digits: int, shape: DecimalSpec, rounding: str) -> Decimal:
    """Round to `digits` after the point, or before it if negative, in one direction."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int), "value is finite"
    if -exponent > digits:
        value = value.quantize(Decimal((0, (1,), -digits)), rounding, WIDE)
        if value.adjusted() >= MAX_PRECISION:
            raise_overflow(value, str(shape.type))
    return round_to_scale(value, shape)


def _has_most_digits(call: CallTerm) -> bool:
    return isinstance(call.type, DecimalType) and call.type.precision == MAX_PRECISION


def _digits_of(call: CallTerm) -> int:
    (digits,) = call.options
    assert isinstance(digits, int)
    return digits


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


# -- on columns -------------------------------------------------------------------------------


def _rounded_columns(*, even: bool) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        if isinstance(call.type, DecimalType):
            return (integer_columns.round_half_even if even else integer_columns.round_half_up)(
                call, arguments
            )
        if is_float(call.type):
            return _rounded_float(call, arguments, even=even)
        return _rounded_integer(call, arguments, even=even)

    return lowering


def _rounded_integer(
    call: CallTerm, arguments: Sequence[LoweredExpression], *, even: bool
) -> LoweredExpression:
    (a,), digits = arguments, -_digits_of(call)
    if digits <= 0:
        return a
    low, high = RANGES[call.type]
    if digits > _INT64_DIGITS:
        value = pl.when(a.value.is_not_null()).then(pl.lit(0, dtype=dtype_of(call.type)))
        return LoweredExpression(value, (0, 0))
    wide = LoweredExpression(a.value.cast(pl.Int128), bounds_of(a))
    made = integer_columns.lengthened(integer_columns.divided(wide, digits, even=even), digits)
    least, most = bounds_of(made)
    narrow = made.value.cast(dtype_of(call.type), strict=False)
    # A number that is rounded to the least one of its type raises, unless half to even.
    first = low if even else low + 1
    return lower_bounded_integer(
        narrow, (least, most) if least >= first else (low - 1, most), call.type,
        lambda: (made.value < first) | (made.value > high),
    )  # fmt: skip


def _rounded_float(
    call: CallTerm, arguments: Sequence[LoweredExpression], *, even: bool
) -> LoweredExpression:
    (a,), digits = arguments, _digits_of(call)
    if call.type != FLOAT64 or not 0 <= digits <= PLACES:
        raise NotLowered(f"{call.function.name}() of a {call.type} to {digits} digits has no columnar form")
    # By the shortest decimal, as in rows; what is not finite stays.
    short = integer_columns.divided(shortest_decimal(a.value), PLACES - digits, even=even)
    made = integer_columns.float_of(short, digits)
    value = pl.when(a.value.is_finite()).then(made.value).otherwise(a.value)
    fails = None if made.fails is None else made.fails & a.value.is_finite()
    return LoweredExpression(value, None, fails)


def _whole_columns(rounding: Literal["floor", "ceil"]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        if isinstance(call.type, DecimalType):
            return integer_columns.whole_number(call, arguments, rounding)
        (a,) = arguments
        if not is_float(call.arguments[0].type):
            return a
        rounded = a.value.ceil() if rounding == "ceil" else a.value.floor()
        number = a.value.is_not_nan()
        value = pl.when(number).then(rounded.cast(pl.Int64, strict=False)).when(~number).then(0)
        return LoweredExpression(value, RANGES[INT64], number & ~(rounded.abs() <= SAFE_FLOAT))

    return lowering


NAMES: dict[str, Any] = {
    "x_round_float": round_float,
    "x_round_int": round_int,
    "x_round_decimal": round_decimal,
    "x_floor": floor_float,
    "x_ceil": ceil_float,
    "x_floor_decimal": floor_decimal,
    "x_ceil_decimal": ceil_decimal,
    "x_round_towards": round_towards,
    "x_bround_decimal": bround_decimal,
    "x_bround_float": bround_float,
    "x_bround_int": bround_int,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "round",
        types=rounding_rule("round"),
        code=_round,
        fallible=lambda call: not is_float(call.type),
        arity=(1, 1),
        options=(is_digits,),
        columns=_rounded_columns(even=False),
        spark=lambda call, arguments: F.round(arguments[0], _digits_of(call)),
    ),
    function(
        "floor",
        types=_whole_rule("floor"),
        code=_whole("floor"),
        fallible=_leaves_floats,
        arity=(1, 1),
        catalyst="Floor",
        columns=_whole_columns("floor"),
    ),
    function(
        "ceil",
        types=_whole_rule("ceil"),
        code=_whole("ceil"),
        fallible=_leaves_floats,
        arity=(1, 1),
        catalyst="Ceil",
        columns=_whole_columns("ceil"),
    ),
    function(
        "round_floor",
        types=_to_digits_rule("floor"),
        code=_to_digits(ROUND_FLOOR),
        fallible=_has_most_digits,
        arity=(1, 1),
        options=(is_digits,),
        columns=integer_columns.round_towards("floor"),
        spark=lambda call, arguments: F.floor(arguments[0], F.lit(_digits_of(call))),
    ),
    function(
        "round_ceil",
        types=_to_digits_rule("ceil"),
        code=_to_digits(ROUND_CEILING),
        fallible=_has_most_digits,
        arity=(1, 1),
        options=(is_digits,),
        columns=integer_columns.round_towards("ceil"),
        spark=lambda call, arguments: F.ceil(arguments[0], F.lit(_digits_of(call))),
    ),
    function(
        "bround",
        types=rounding_rule("bround"),
        code=_bround,
        fallible=lambda call: not is_float(call.type),
        arity=(1, 1),
        options=(is_digits,),
        columns=_rounded_columns(even=True),
        spark=lambda call, arguments: F.bround(arguments[0], _digits_of(call)),
    ),
)
