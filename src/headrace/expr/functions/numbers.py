"""Numeric functions: sign, rounding, least and greatest."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from headrace.expr.code_runtime import NAN, raise_overflow
from headrace.expr.decimal_arithmetic import WIDE, DecimalSpec, round_half_up, round_to_scale
from headrace.expr.function_bases import Emitter, GuardedSource, LazyFunction, StrictFunction, fixed
from headrace.expr.functions.arithmetic import decimal_spec, in_bits, overflow_checked
from headrace.expr.functions.comparison import refuse_unordered
from headrace.expr.sort_keys import order_key
from headrace.expr.types import (
    FLOAT64,
    INT32,
    INT64,
    INTERVAL,
    RANGES,
    DataType,
    DecimalType,
    IntervalType,
    parts_of,
)
from headrace.expr.typing_rules import NULL, Arguments, CallTerm, Function, Mismatch, Signature
from headrace.expr.widening import (
    MAX_PRECISION,
    common_type,
    exact_as_decimal,
    is_float,
    is_integer,
    is_number,
)


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


# -- rounding ---------------------------------------------------------------------------


def rounding_rule(what: str) -> Callable[[Arguments, tuple[object, ...]], Signature]:
    """Typing rule of rounding to a number of digits, the option."""

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


def square_root(value: float) -> float:
    return math.sqrt(value) if value >= 0 else NAN


def sign(value: float | timedelta) -> float:
    if isinstance(value, timedelta):
        return float((value > _NO_TIME) - (value < _NO_TIME))
    return value if value != value or not value else math.copysign(1.0, value)


_NO_TIME = timedelta()

NAMES: dict[str, Any] = {
    "x_sign": sign,
    "x_sqrt": square_root,
    "x_round_float": round_float,
    "x_round_int": round_int,
    "x_round_decimal": round_decimal,
    "x_floor": floor_float,
    "x_ceil": ceil_float,
    "x_floor_decimal": floor_decimal,
    "x_ceil_decimal": ceil_decimal,
    "x_round_towards": round_towards,
    "x_least": least,
    "x_greatest": greatest,
    "x_least_float": least_float,
    "x_greatest_float": greatest_float,
}

FUNCTIONS: tuple[Function, ...] = (
    StrictFunction("negate", _number("-"), _negate, _may_overflow),
    StrictFunction("abs", _number("abs"), _abs, _may_overflow),
    StrictFunction("round", rounding_rule("round"), _round, lambda call: not is_float(call.type)),
    StrictFunction("floor", _whole_rule("floor"), _whole("floor"), _leaves_floats),
    StrictFunction("ceil", _whole_rule("ceil"), _whole("ceil"), _leaves_floats),
    StrictFunction("round_floor", _to_digits_rule("floor"), _to_digits(ROUND_FLOOR), _has_most_digits),
    StrictFunction("round_ceil", _to_digits_rule("ceil"), _to_digits(ROUND_CEILING), _has_most_digits),
    LazyFunction("least", _extreme_rule("least"), _extreme("least", "<=")),
    LazyFunction("greatest", _extreme_rule("greatest"), _extreme("greatest", ">=")),
    fixed("sqrt", "Square root; NaN for a negative number.", (FLOAT64,), FLOAT64, "x_sqrt({0})"),
    fixed(
        "signum",
        "Sign of the number or interval: -1.0, 0.0 or 1.0.",
        ((FLOAT64, INTERVAL),),
        FLOAT64,
        "x_sign({0})",
    ),
    fixed(
        "degrees",
        "An angle in radians, converted to degrees.",
        (FLOAT64,),
        FLOAT64,
        "({0} * 57.29577951308232)",
    ),
    fixed("bit_count", "Number of set bits.", (INT64,), INT32, "({0} & 0xFFFFFFFFFFFFFFFF).bit_count()"),
)
