"""Arithmetic operators: + - * / // %.

Integers keep their width and raise on overflow; `/` of integers is a float; decimals follow Spark's rules for
precision and scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.expr.code_emission import Emitter
from headrace.expr.code_runtime import NAN, raise_overflow, raise_zero_division
from headrace.expr.decimal_arithmetic import DecimalSpec
from headrace.expr.deferred_imports import F, pl
from headrace.expr.function_records import function, of_spark_columns
from headrace.expr.functions import decimal_columns
from headrace.expr.functions.intervals import interval_signature, interval_source
from headrace.expr.functions.spark_casts import spark_time_sum
from headrace.expr.functions.time_columns import (
    count_of,
    interval_product,
    of_intervals,
    time_sum,
)
from headrace.expr.polars_columns import (
    Bounds,
    LoweredExpression,
    NotLowered,
    bounds_of,
    dtype_of,
    either_condition,
    lower_bounded_integer,
    quotient,
    spread,
)
from headrace.expr.types import (
    FLOAT32,
    FLOAT64,
    INT64,
    INTERVAL,
    RANGES,
    STR,
    DataType,
    DecimalType,
    IntervalType,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Function,
    LiteralTerm,
    Mismatch,
    Signature,
    SparkForm,
)
from headrace.expr.widening import (
    MAX_PRECISION,
    common_type,
    decimal_of,
    is_float,
    is_integer,
    is_number,
    limit_decimal_digits,
)

if TYPE_CHECKING:
    from pyspark.sql import Column


def overflow_checked(emitter: Emitter, source: str, type: DataType) -> str:
    """Wrap integer source so that it raises on overflow."""
    low, high = RANGES[type]
    name = emitter.fresh()
    return f"({name} if {low} <= ({name} := {source}) <= {high} else x_overflow({name}, '{type}'))"


def in_bits(type: DataType, source: str) -> str:
    """Wrap float source so that it has the bits of its type."""
    return f"x_f32({source})" if type == FLOAT32 else source


def is_decimal_pair(arguments: Arguments) -> bool:
    """Return whether arithmetic on two types is decimal: one is a decimal and the other is not a float."""
    types = [a.type for a in arguments]
    return not any(map(is_float, types)) and any(isinstance(t, DecimalType) for t in types)


def common_number_type(what: str, arguments: Arguments) -> DataType:
    """Return the common type of numbers. Raises `Mismatch` for other types."""
    common = common_type(arguments)
    if not is_number(common):
        types = " and ".join(str(a.type) for a in arguments)
        raise Mismatch(f"{what} needs numbers, got {types}", fix="cast them to numbers")
    return common


DecimalRule = Callable[[DecimalType, DecimalType], DecimalType]


def _sum_type(a: DecimalType, b: DecimalType) -> DecimalType:
    scale = max(a.scale, b.scale)
    return limit_decimal_digits(max(a.precision - a.scale, b.precision - b.scale) + scale + 1, scale)


def _product_type(a: DecimalType, b: DecimalType) -> DecimalType:
    return limit_decimal_digits(a.precision + b.precision + 1, a.scale + b.scale)


def _quotient_type(a: DecimalType, b: DecimalType) -> DecimalType:
    scale = max(6, a.scale + b.precision + 1)
    return limit_decimal_digits(a.precision - a.scale + b.scale + scale, scale)


def _remainder_type(a: DecimalType, b: DecimalType) -> DecimalType:
    scale = max(a.scale, b.scale)
    return limit_decimal_digits(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)


def _rule(what: str, decimals: DecimalRule) -> Callable[[Arguments, tuple[object, ...]], Signature]:
    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        types = [a.type for a in arguments]
        if what == "+" and types == [STR, STR]:
            return Signature((STR, STR), STR)
        spans = interval_signature(what, arguments)
        if spans is not None:
            return spans
        _refuse_times(what, arguments)
        if is_decimal_pair(arguments):
            common_number_type(what, arguments)
            beside = next(t for t in types if isinstance(t, DecimalType))
            a, b = (beside if t.type == NULL else decimal_of(t) for t in arguments)
            return Signature((a, b), decimals(a, b))
        common = common_number_type(what, arguments)
        if what == "/":
            common = FLOAT64
        return Signature((common, common), common)

    return rule


def _refuse_times(what: str, arguments: Arguments) -> None:
    types = {str(a.type) for a in arguments}
    if types & {"date", "timestamp"}:
        raise Mismatch(
            f"{what} does not work on {' and '.join(str(a.type) for a in arguments)}",
            fix="add or subtract a timedelta; differences are micros_since, seconds_since, days_since",
        )


def _plain(symbol: str, helper: str) -> Callable[[Emitter, CallTerm, tuple[str, ...]], str]:
    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        a, b = operands
        spans = interval_source(symbol, call, operands)
        if spans is not None:
            return spans
        if isinstance(call.type, DecimalType):
            if not _loses_digits(symbol, *(argument.type for argument in call.arguments)):
                return _exact_decimal(emitter, symbol, a, b)
            return f"{helper}({a}, {b}, {emitter.constant(decimal_spec(call.type))})"
        if is_integer(call.type):
            return overflow_checked(emitter, f"{a} {symbol} {b}", call.type)
        return in_bits(call.type, f"({a} {symbol} {b})")

    return python


def _loses_digits(symbol: str, a: DataType, b: DataType) -> bool:
    """Return whether a decimal result may have to be rounded, or not fit."""
    assert isinstance(a, DecimalType)
    assert isinstance(b, DecimalType)
    if symbol == "*":
        return a.precision + b.precision + 1 > MAX_PRECISION
    whole = max(a.precision - a.scale, b.precision - b.scale)
    return whole + max(a.scale, b.scale) + 1 > MAX_PRECISION


def _exact_decimal(emitter: Emitter, symbol: str, a: str, b: str) -> str:
    source = f"{_EXACT_DECIMALS[symbol]}({a}, {b})"
    if symbol != "*":
        return source
    first, again = emitter.name_value(source)
    return f"({again} if {first} else {again}.copy_abs())"


_EXACT_DECIMALS = {"+": "x_exact_add", "-": "x_exact_subtract", "*": "x_exact_multiply"}

_SHAPES: dict[DecimalType, DecimalSpec] = {}


def decimal_spec(type: DecimalType) -> DecimalSpec:
    """Return the `DecimalSpec` of a decimal type, one object per type."""
    return _SHAPES.setdefault(type, DecimalSpec.of(type))


def _is_nonzero_constant(call: CallTerm) -> bool:
    divisor = call.arguments[1]
    return isinstance(divisor, LiteralTerm) and bool(divisor.value)


def _divide(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    a, b = operands
    if isinstance(call.type, IntervalType):
        return f"x_over({a}, {b})"
    if isinstance(call.type, DecimalType):
        return f"x_decimal_divide({a}, {b}, {emitter.constant(decimal_spec(call.type))})"
    if _is_nonzero_constant(call):
        return f"({a} / {b})"
    # The dividend is evaluated before the divisor is checked.
    first, again = emitter.name_value(a)
    divisor, divisor_again = emitter.name_value(b)
    if first == again:
        return f"({a} / {divisor_again} if {divisor} else x_zero_division())"
    return f"({again} / {divisor_again} if ({first}, {divisor})[1] else x_zero_division())"


def _div_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    if all(isinstance(argument.type, IntervalType) for argument in arguments):
        return Signature((INTERVAL, INTERVAL), INT64)
    common = common_number_type("//", arguments)
    if not is_integer(common):
        raise Mismatch(f"// needs integers, got {common}", fix="(a / b).floor()")
    return Signature((INT64, INT64), INT64)


def _div(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    a, b = operands
    if call.arguments[0].type == INTERVAL:
        return f"x_div(x_micros({a}), x_micros({b}))"
    if _is_positive_constant(call):
        first, again = emitter.name_value(a)
        return f"({again} // {b} if {first} >= 0 else -(-{again} // {b}))"
    return f"x_div({a}, {b})"


def _is_positive_constant(call: CallTerm) -> bool:
    divisor = call.arguments[1]
    return isinstance(divisor, LiteralTerm) and isinstance(divisor.value, int) and divisor.value > 0


def _modulo(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    a, b = operands
    if isinstance(call.type, DecimalType):
        return f"x_decimal_modulo({a}, {b}, {emitter.constant(decimal_spec(call.type))})"
    if is_float(call.type):
        return f"x_float_modulo({a}, {b})"
    if _is_positive_constant(call):
        first, again = emitter.name_value(a)
        return f"({again} % {b} if {first} >= 0 else -(-{again} % {b}))"
    return f"x_modulo({a}, {b})"


def _truncated_quotient(a: int, b: int) -> int:
    if b == 0:
        raise_zero_division()
    quotient = abs(a) // abs(b)
    if (a < 0) != (b < 0):
        return -quotient
    return quotient if quotient < 2**63 else raise_overflow(quotient, "int64")


def _signed_remainder(a: int, b: int) -> int:
    if b == 0:
        raise_zero_division()
    rest = abs(a) % abs(b)
    return rest if a >= 0 else -rest


def _float_remainder(a: float, b: float) -> float:
    if b == 0.0:
        raise_zero_division()
    if a - a != 0.0 or b != b:
        return NAN
    return math.fmod(a, b)


def _positive(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    a, b = operands
    if isinstance(call.type, DecimalType):
        return f"x_decimal_pmod({a}, {b}, {emitter.constant(decimal_spec(call.type))})"
    if is_float(call.type):
        return f"x_float_pmod({a}, {b}{', x_f32' if call.type == FLOAT32 else ''})"
    return f"x_pmod({a}, {b}, {64 if call.type == INT64 else 32})"


def _positive_remainder(a: int, b: int, bits: int) -> int:
    """Return the remainder of a division, increased by the divisor if it is negative."""
    rest = _signed_remainder(a, b)
    if rest >= 0:
        return rest
    # The sum leaves the range of the type at its other end, as Spark's does.
    total = rest + b
    return _signed_remainder(total if total >= -(1 << bits - 1) else total + (1 << bits), b)


def _positive_float_remainder(a: float, b: float, in_bits: Callable[[float], float] = float) -> float:
    rest = _float_remainder(a, b)
    return _float_remainder(in_bits(rest + b), b) if rest < 0 else rest


# -- on columns -------------------------------------------------------------------------------


MIN_INT64, MAX_INT64 = RANGES[INT64]
# A product of floats is off by a few parts in 10**16; this leaves far more room below 2**63.
_SAFE = 9.2e18


def wide_integers(call: CallTerm, arguments: Sequence[LoweredExpression]) -> list[pl.Expr]:
    """Widen integer operands to 64 bits, in which narrower arithmetic cannot overflow."""
    if call.type not in RANGES or call.type == INT64:
        return [a.value for a in arguments]
    return [a.value.cast(pl.Int64) for a in arguments]


def checked_integer(call: CallTerm, exact: pl.Expr, bounds: Bounds, leaves64: pl.Expr) -> LoweredExpression:
    """Range-check a 64-bit result and cast it to the integer type of the call."""
    if call.type == INT64:
        return lower_bounded_integer(exact, bounds, INT64, lambda: leaves64)
    low, high = RANGES[call.type]
    narrow = exact.cast(dtype_of(call.type), strict=False)
    return lower_bounded_integer(narrow, bounds, call.type, lambda: (exact < low) | (exact > high))


def _add_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return time_sum(call, arguments)
    if isinstance(call.type, DecimalType):
        return decimal_columns.add(call, arguments)
    a, b = wide_integers(call, arguments)
    if call.type == STR:
        return LoweredExpression(pl.concat_str([a, b]))
    if call.type not in RANGES:
        return LoweredExpression(spread(a, b, dtype_of(call.type)) + spread(b, a, dtype_of(call.type)))
    total = a + b
    (al, ah), (bl, bh) = map(bounds_of, arguments)
    # The sum has wrapped where its sign differs from that of both operands.
    return checked_integer(call, total, (al + bl, ah + bh), ((a ^ total) & (b ^ total)) < 0)


def _subtract_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return time_sum(call, arguments)
    if isinstance(call.type, DecimalType):
        return decimal_columns.subtract(call, arguments)
    a, b = wide_integers(call, arguments)
    if call.type not in RANGES:
        return LoweredExpression(spread(a, b, dtype_of(call.type)) - spread(b, a, dtype_of(call.type)))
    rest = a - b
    (al, ah), (bl, bh) = map(bounds_of, arguments)
    return checked_integer(call, rest, (al - bh, ah - bl), ((a ^ b) & (a ^ rest)) < 0)


def _multiply_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return interval_product(call, arguments)
    if isinstance(call.type, DecimalType):
        return decimal_columns.multiply(call, arguments)
    a, b = wide_integers(call, arguments)
    if call.type not in RANGES:
        return LoweredExpression(a * b)
    corners = [x * y for x in bounds_of(arguments[0]) for y in bounds_of(arguments[1])]
    leaves = (a.cast(pl.Float64) * b.cast(pl.Float64)).abs() > _SAFE
    return checked_integer(call, a * b, (min(corners), max(corners)), leaves)


def _divide_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if isinstance(call.type, DecimalType):
        return decimal_columns.divide(call, arguments)
    if of_intervals(call):
        raise NotLowered("a part of an interval has no columnar form")
    a, b = (one.value for one in arguments)
    return LoweredExpression(quotient(a, b), None, b == 0.0)


def _zero(divisor: LoweredExpression) -> pl.Expr | None:
    low, high = bounds_of(divisor)
    return divisor.value == 0 if low <= 0 <= high else None


def _div_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        arguments = [LoweredExpression(count_of(one.value), (MIN_INT64, MAX_INT64)) for one in arguments]
    (al, ah), (bl, bh) = map(bounds_of, arguments)
    a, b = (one.value for one in arguments)
    floor = a // b
    # Polars rounds down, and Spark cuts: one more where there is a rest and the signs differ.
    cut = floor if al >= 0 and bl > 0 else floor + ((floor * b != a) & ((a < 0) != (b < 0)))
    leaves = (a == MIN_INT64) & (b == -1) if al == MIN_INT64 and bl <= -1 <= bh else None
    most = max(abs(al), abs(ah))
    return LoweredExpression(
        cut, (max(-most, MIN_INT64), min(most, MAX_INT64)), either_condition(_zero(arguments[1]), leaves)
    )


def _modulo_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if isinstance(call.type, DecimalType):
        return decimal_columns.modulo(call, arguments)
    if is_float(call.type):
        raise NotLowered("% of floats has no columnar form")
    (al, ah), (bl, bh) = map(bounds_of, arguments)
    a, b = wide_integers(call, arguments)
    rest = a % b
    if al < 0 or bl < 0:
        # Polars gives the sign of the divisor, and Spark that of the dividend.
        rest = pl.when((rest != 0) & ((a < 0) != (b < 0))).then(rest - b).otherwise(rest)
    most = max(abs(bl), abs(bh), 1) - 1
    bounds = (-min(most, abs(al)) if al < 0 else 0, min(most, max(ah, 0)))
    value = rest if call.type == INT64 else rest.cast(dtype_of(call.type))
    return LoweredExpression(value, bounds, _zero(arguments[1]))


def _pmod_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if isinstance(call.type, DecimalType):
        return decimal_columns.pmod(call, arguments)
    if is_float(call.type):
        raise NotLowered("pmod() of floats has no columnar form")
    (_, _), (bl, bh) = map(bounds_of, arguments)
    if bl <= 0:
        raise NotLowered("pmod() has a columnar form only by divisors that are known to be positive")
    # The rest of Polars has the sign of the divisor.
    a, b = (one.value.cast(pl.Int64) for one in arguments)
    return LoweredExpression((a % b).cast(dtype_of(call.type)), (0, bh - 1))


# -- on Spark ---------------------------------------------------------------------------------


def _add_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    a, b = arguments
    moved = spark_time_sum(call, arguments)
    if moved is not None:
        return moved
    return F.concat(a, b) if call.type == STR else a + b


def _subtract_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    a, b = arguments
    moved = spark_time_sum(call, arguments)
    return a - b if moved is None else moved


def tried_spark(name: str) -> SparkForm:
    """Lower arithmetic that is null where it fails, but raises where its operands do.

    Of times and intervals, Spark makes a `TryEval` of it, in which operands are null, too: they are computed
    before, and an element of a list.
    """

    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        if not any(isinstance(each.type, IntervalType) for each in (call, *call.arguments)):
            return F.call_function(name, *arguments)
        moved = spark_time_sum(call, arguments)
        if moved is not None:
            return moved
        a, b = arguments
        pairs = F.array(F.struct(a.alias("a"), b.alias("b")))
        return F.transform(pairs, lambda pair: F.call_function(name, pair.getField("a"), pair.getField("b")))[
            0
        ]

    return lowering


NAMES: dict[str, Any] = {
    "x_pmod": _positive_remainder,
    "x_float_pmod": _positive_float_remainder,
    "x_div": _truncated_quotient,
    "x_modulo": _signed_remainder,
    "x_float_modulo": _float_remainder,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "add",
        types=_rule("+", _sum_type),
        code=_plain("+", "x_decimal_add"),
        fallible=True,
        arity=(2, 2),
        catalyst="Add",
        columns=_add_columns,
        spark=_add_spark,
    ),
    function(
        "subtract",
        types=_rule("-", _sum_type),
        code=_plain("-", "x_decimal_subtract"),
        fallible=True,
        arity=(2, 2),
        catalyst="Subtract",
        columns=_subtract_columns,
        spark=_subtract_spark,
    ),
    function(
        "multiply",
        types=_rule("*", _product_type),
        code=_plain("*", "x_decimal_multiply"),
        fallible=True,
        arity=(2, 2),
        catalyst="Multiply",
        columns=_multiply_columns,
        spark=of_spark_columns(lambda a, b: a * b),
    ),
    function(
        "divide",
        types=_rule("/", _quotient_type),
        code=_divide,
        fallible=True,
        last_first=lambda call: not isinstance(call.type, IntervalType),
        arity=(2, 2),
        catalyst="Divide",
        columns=_divide_columns,
        spark=of_spark_columns(lambda a, b: a / b),
    ),
    function(
        "div",
        types=_div_rule,
        code=_div,
        fallible=True,
        last_first=True,
        arity=(2, 2),
        catalyst="IntegralDivide",
        columns=_div_columns,
    ),
    function(
        "modulo",
        types=_rule("%", _remainder_type),
        code=_modulo,
        fallible=True,
        last_first=True,
        arity=(2, 2),
        catalyst="Remainder",
        columns=_modulo_columns,
        spark=of_spark_columns(lambda a, b: a % b),
    ),
    function(
        "pmod",
        "Remainder, with the divisor added if it is negative.",
        types=_rule("pmod", _remainder_type),
        code=_positive,
        fallible=True,
        last_first=True,
        arity=(2, 2),
        shown_parameters="number, number",
        example="-7, 3",
        catalyst="Pmod",
        columns=_pmod_columns,
    ),
)
