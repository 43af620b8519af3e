"""Numeric functions: division, remainders, sign, least and greatest.

The sign of a remainder is that of the dividend (%) or the divisor (pmod).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import NAN, raise_overflow, raise_zero_division
from headrace.expr.function_records import function, of_spark_column, of_spark_columns
from headrace.expr.functions import integer_columns
from headrace.expr.functions.arithmetic import (
    MAX_INT64,
    MIN_INT64,
    arithmetic_rule,
    checked_integer,
    common_number_type,
    decimal_spec,
    overflow_checked,
    wide_integers,
)
from headrace.expr.functions.comparison import refuse_unordered
from headrace.expr.functions.integer_columns import count_of, interval_sign, of_intervals
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
    bounds_hull,
    bounds_of,
    dtype_of,
    either_condition,
    quotient,
    spread,
)
from headrace.expr.types import FLOAT32, FLOAT64, INT64, INTERVAL, DecimalType, IntervalType, parts_of
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    GuardedSource,
    LiteralTerm,
    Mismatch,
    Signature,
    common_type,
    is_float,
    is_integer,
    is_number,
    limit_decimal_digits,
)
from headrace.expr.value_keys import order_key
from headrace.requirements import pl


def _number(what: str) -> Callable[[Arguments, tuple[object, ...]], Signature]:
    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        (argument,) = arguments
        if not is_number(argument.type) and not isinstance(argument.type, IntervalType):
            raise Mismatch(f"{what} needs a number, got {argument.type}")
        return Signature((argument.type,), argument.type)

    return rule


def _negate(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    (a,) = operands
    if isinstance(call.type, IntervalType):
        return f"x_interval(-{a})"
    if isinstance(call.type, DecimalType):
        return f"x_decimal_negate({a})"
    return overflow_checked(emitter, f"-{a}", call.type) if is_integer(call.type) else f"(-{a})"


def _abs(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    (a,) = operands
    if isinstance(call.type, IntervalType):
        return f"x_interval(abs({a}))"
    if isinstance(call.type, DecimalType):
        return f"x_decimal_abs({a})"
    return overflow_checked(emitter, f"abs({a})", call.type) if is_integer(call.type) else f"abs({a})"


def _may_overflow(call: CallTerm) -> bool:
    return is_integer(call.type) or isinstance(call.type, IntervalType)


# -- least and greatest ------------------------------------------------------------------


def _extreme_rule(what: str) -> Callable[[Arguments, tuple[object, ...]], Signature]:
    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        if len(arguments) < 2:
            raise Mismatch(f"{what} needs at least two values")
        common = common_type(arguments)
        refuse_unordered(common, fix="map() the rows with a function")
        return Signature((common,) * len(arguments), common, all(a.nullable for a in arguments))

    return rule


def _extreme(name: str, symbol: str) -> Callable[[Emitter, CallTerm], GuardedSource]:
    def python(emitter: Emitter, call: CallTerm) -> GuardedSource:
        sources = [emitter.value(a) for a in call.arguments]
        if parts_of(call.type):
            key = emitter.constant(order_key(call.type, False))
            return GuardedSource(f"x_{name}({', '.join(sources)}, key={key})")
        if is_float(call.type) or call.type == NULL or any(a.nullable for a in call.arguments):
            suffix = "_float" if is_float(call.type) else ""
            return GuardedSource(f"x_{name}{suffix}({', '.join(sources)})")
        best = sources[0]
        for source in sources[1:]:
            (first_a, a), (first_b, b) = emitter.name_value(best), emitter.name_value(source)
            best = f"({a} if {first_a} {symbol} {first_b} else {b})"
        return GuardedSource(best)

    return python


def least(*values: Any, key: Any = None) -> Any:
    """Return the least value that is not null."""
    return min((v for v in values if v is not None), default=None, key=key)


def greatest(*values: Any, key: Any = None) -> Any:
    """Return the greatest value that is not null."""
    return max((v for v in values if v is not None), default=None, key=key)


def _float_order(value: float) -> tuple[bool, float]:
    return (False, value) if value == value else (True, 0.0)


def least_float(*values: float | None) -> float | None:
    """Return the least float that is not null; NaN is greatest."""
    return min((v for v in values if v is not None), default=None, key=_float_order)


def greatest_float(*values: float | None) -> float | None:
    """Return the greatest float that is not null; NaN is greatest."""
    return max((v for v in values if v is not None), default=None, key=_float_order)


# -- of floats -----------------------------------------------------------------------------


def sign(value: float | timedelta) -> float:
    if isinstance(value, timedelta):
        return float((value > _NO_TIME) - (value < _NO_TIME))
    return value if value != value or not value else math.copysign(1.0, value)


_NO_TIME = timedelta()


# -- on columns -------------------------------------------------------------------------------


def _sign_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    value = arguments[0].value
    if isinstance(call.arguments[0].type, IntervalType):
        return LoweredExpression(value.to_physical().sign().cast(pl.Float64))
    one = pl.when(value > 0).then(1.0).otherwise(-1.0)
    return LoweredExpression(
        pl.when(value.is_nan() | (value == 0) | value.is_null()).then(value).otherwise(one)
    )


# -- bits --------------------------------------------------------------------------------------


def _negate_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return interval_sign(call, arguments)
    if isinstance(call.type, DecimalType):
        return integer_columns.negate(call, arguments)
    (a,) = wide_integers(call, arguments)
    if is_float(call.type):
        return LoweredExpression(-a)
    low, high = bounds_of(arguments[0])
    return checked_integer(call, -a, (-high, -low), a == MIN_INT64)


def _abs_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return interval_sign(call, arguments)
    if isinstance(call.type, DecimalType):
        return integer_columns.absolute(call, arguments)
    (a,) = wide_integers(call, arguments)
    if is_float(call.type):
        return LoweredExpression(a.abs())
    low, high = bounds_of(arguments[0])
    least = 0 if low <= 0 <= high else min(abs(low), abs(high))
    return checked_integer(call, a.abs(), (least, max(abs(low), abs(high))), a == MIN_INT64)


def _best(call: CallTerm, arguments: Sequence[LoweredExpression], *, least: bool) -> LoweredExpression:
    """Return the extreme of the operands, ignoring nulls.

    NaN is the greatest float, to comparisons of Polars as well.
    """
    values = [a.value for a in arguments]
    if is_float(call.type):  # of two constants, Polars takes -0.0 for less than 0.0
        of_rows = next(
            v for v, t in zip(values, call.arguments, strict=True) if not isinstance(t, LiteralTerm)
        )
        values = [spread(value, of_rows, dtype_of(call.type)) for value in values]

    def better(one: pl.Expr, other: pl.Expr) -> pl.Expr:
        wins = other < one if least else other > one
        return pl.when(one.is_null() | wins).then(other).otherwise(one)

    # A null that is compared is never better.
    value = reduce(better, values)
    return LoweredExpression(value, bounds_hull(arguments), either_condition(*(a.fails for a in arguments)))


FUNCTIONS: tuple[Function, ...] = (
    function(
        "negate",
        types=_number("-"),
        code=_negate,
        fallible=_may_overflow,
        arity=(1, 1),
        catalyst="UnaryMinus",
        columns=_negate_columns,
        spark=of_spark_column(lambda a: -a),
    ),
    function(
        "abs",
        types=_number("abs"),
        code=_abs,
        fallible=_may_overflow,
        arity=(1, 1),
        catalyst="Abs",
        columns=_abs_columns,
    ),
    function(
        "least",
        types=_extreme_rule("least"),
        lazy=_extreme("least", "<="),
        arity=(2, None),
        catalyst="Least",
        columns=partial(_best, least=True),
        keeps_size=True,
    ),
    function(
        "greatest",
        types=_extreme_rule("greatest"),
        lazy=_extreme("greatest", ">="),
        arity=(2, None),
        catalyst="Greatest",
        columns=partial(_best, least=False),
        keeps_size=True,
    ),
    function(
        "signum",
        "Sign of the number or interval: -1.0, 0.0 or 1.0.",
        ((FLOAT64, INTERVAL),),
        FLOAT64,
        sign,
        example="-2.5",
        catalyst="Signum",
        columns=_sign_columns,
    ),
)

if TYPE_CHECKING:
    pass


def quotient_type(a: DecimalType, b: DecimalType) -> DecimalType:
    scale = max(6, a.scale + b.precision + 1)
    return limit_decimal_digits(a.precision - a.scale + b.scale + scale, scale)


def remainder_type(a: DecimalType, b: DecimalType) -> DecimalType:
    scale = max(a.scale, b.scale)
    return limit_decimal_digits(min(a.precision - a.scale, b.precision - b.scale) + scale, scale)


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


def _divide_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if isinstance(call.type, DecimalType):
        return integer_columns.divide(call, arguments)
    if of_intervals(call):
        raise NotLowered("a part of an interval has no columnar form")
    a, b = (one.value for one in arguments)
    return LoweredExpression(quotient(a, b), None, b == 0.0)


def zero_divisor(divisor: LoweredExpression) -> pl.Expr | None:
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
        cut,
        (max(-most, MIN_INT64), min(most, MAX_INT64)),
        either_condition(zero_divisor(arguments[1]), leaves),
    )


def _modulo_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if isinstance(call.type, DecimalType):
        return integer_columns.modulo(call, arguments)
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
    return LoweredExpression(value, bounds, zero_divisor(arguments[1]))


def _pmod_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if isinstance(call.type, DecimalType):
        return integer_columns.pmod(call, arguments)
    if is_float(call.type):
        raise NotLowered("pmod() of floats has no columnar form")
    (_, _), (bl, bh) = map(bounds_of, arguments)
    if bl <= 0:
        raise NotLowered("pmod() has a columnar form only by divisors that are known to be positive")
    # The rest of Polars has the sign of the divisor.
    a, b = (one.value.cast(pl.Int64) for one in arguments)
    return LoweredExpression((a % b).cast(dtype_of(call.type)), (0, bh - 1))


NAMES: dict[str, Any] = {
    "x_least": least,
    "x_greatest": greatest,
    "x_least_float": least_float,
    "x_greatest_float": greatest_float,
    "x_pmod": _positive_remainder,
    "x_float_pmod": _positive_float_remainder,
    "x_div": _truncated_quotient,
    "x_modulo": _signed_remainder,
    "x_float_modulo": _float_remainder,
}

DIVISIONS: tuple[Function, ...] = (
    function(
        "divide",
        types=arithmetic_rule("/", quotient_type),
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
        types=arithmetic_rule("%", remainder_type),
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
        types=arithmetic_rule("pmod", remainder_type),
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
