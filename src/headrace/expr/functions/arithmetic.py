"""Arithmetic operators: + - * / // %.

Integers keep their width and raise on overflow; `/` of integers is a float; decimals follow Spark's rules for
precision and scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from headrace.expr.code_runtime import NAN, raise_overflow, raise_zero_division
from headrace.expr.decimal_arithmetic import DecimalSpec
from headrace.expr.function_bases import Emitter, StrictFunction
from headrace.expr.functions.intervals import interval_signature, interval_source
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
from headrace.expr.typing_rules import NULL, Arguments, CallTerm, Function, LiteralTerm, Mismatch, Signature
from headrace.expr.widening import (
    MAX_PRECISION,
    common_type,
    decimal_of,
    is_float,
    is_integer,
    is_number,
    limit_decimal_digits,
)


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


NAMES: dict[str, Any] = {
    "x_pmod": _positive_remainder,
    "x_float_pmod": _positive_float_remainder,
    "x_div": _truncated_quotient,
    "x_modulo": _signed_remainder,
    "x_float_modulo": _float_remainder,
}

FUNCTIONS: tuple[Function, ...] = (
    StrictFunction("add", _rule("+", _sum_type), _plain("+", "x_decimal_add"), fallible=True),
    StrictFunction("subtract", _rule("-", _sum_type), _plain("-", "x_decimal_subtract"), fallible=True),
    StrictFunction("multiply", _rule("*", _product_type), _plain("*", "x_decimal_multiply"), fallible=True),
    StrictFunction(
        "divide",
        _rule("/", _quotient_type),
        _divide,
        fallible=True,
        last_first=lambda call: not isinstance(call.type, IntervalType),
    ),
    StrictFunction("div", _div_rule, _div, fallible=True, last_first=True),
    StrictFunction("modulo", _rule("%", _remainder_type), _modulo, fallible=True, last_first=True),
    StrictFunction(
        "pmod",
        _rule("pmod", _remainder_type),
        _positive,
        fallible=True,
        last_first=True,
        arity=(2, 2),
        meaning="Remainder, with the divisor added if it is negative.",
    ),
)
