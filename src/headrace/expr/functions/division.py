"""Division: / and //, and remainders, whose sign is that of the dividend (%) or the divisor (pmod)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headrace.expr.code_emission import Emitter
from headrace.expr.code_runtime import NAN, raise_overflow, raise_zero_division
from headrace.expr.deferred_imports import pl
from headrace.expr.function_records import function, of_spark_columns
from headrace.expr.functions import decimal_columns
from headrace.expr.functions.arithmetic import (
    MAX_INT64,
    MIN_INT64,
    arithmetic_rule,
    common_number_type,
    decimal_spec,
    wide_integers,
)
from headrace.expr.functions.time_columns import (
    count_of,
    of_intervals,
)
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
    bounds_of,
    dtype_of,
    either_condition,
    quotient,
)
from headrace.expr.types import (
    FLOAT32,
    INT64,
    INTERVAL,
    DecimalType,
    IntervalType,
)
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Function,
    LiteralTerm,
    Mismatch,
    Signature,
    is_float,
    is_integer,
    limit_decimal_digits,
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
        return decimal_columns.divide(call, arguments)
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
    return LoweredExpression(value, bounds, zero_divisor(arguments[1]))


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


NAMES: dict[str, Any] = {
    "x_pmod": _positive_remainder,
    "x_float_pmod": _positive_float_remainder,
    "x_div": _truncated_quotient,
    "x_modulo": _signed_remainder,
    "x_float_modulo": _float_remainder,
}

FUNCTIONS: tuple[Function, ...] = (
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
