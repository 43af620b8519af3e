"""Numeric functions: sign, rounding, least and greatest."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial, reduce
from typing import Any

from headrace.expr.code_emission import Emitter, GuardedSource
from headrace.expr.deferred_imports import pl
from headrace.expr.function_records import function, of_spark_column
from headrace.expr.functions import decimal_columns
from headrace.expr.functions.arithmetic import (
    MIN_INT64,
    checked_integer,
    overflow_checked,
    wide_integers,
)
from headrace.expr.functions.comparison import refuse_unordered
from headrace.expr.functions.time_columns import (
    interval_sign,
    of_intervals,
)
from headrace.expr.polars_columns import (
    LoweredExpression,
    bounds_hull,
    bounds_of,
    dtype_of,
    either_condition,
    spread,
)
from headrace.expr.sort_keys import order_key
from headrace.expr.types import (
    FLOAT64,
    INTERVAL,
    DecimalType,
    IntervalType,
    parts_of,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Function,
    LiteralTerm,
    Mismatch,
    Signature,
    common_type,
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
        return decimal_columns.negate(call, arguments)
    (a,) = wide_integers(call, arguments)
    if is_float(call.type):
        return LoweredExpression(-a)
    low, high = bounds_of(arguments[0])
    return checked_integer(call, -a, (-high, -low), a == MIN_INT64)


def _abs_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    if of_intervals(call):
        return interval_sign(call, arguments)
    if isinstance(call.type, DecimalType):
        return decimal_columns.absolute(call, arguments)
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


NAMES: dict[str, Any] = {
    "x_least": least,
    "x_greatest": greatest,
    "x_least_float": least_float,
    "x_greatest_float": greatest_float,
}

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
