"""Times and intervals of columns, computed on days and microseconds since 1970."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from headrace.expr.deferred_imports import pl
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
)
from headrace.expr.types import (
    DATE,
    INT64,
    INTERVAL_UNITS,
    RANGES,
    DataType,
    IntegerType,
    IntervalType,
)
from headrace.expr.typing_rules import CallTerm

MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)
FIRST_MICROSECOND = (datetime.min - _EPOCH) // MICROSECOND
LAST_MICROSECOND = (datetime.max - _EPOCH) // MICROSECOND
_FIRST_DAY, _LAST_DAY = (date.min - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days


def count_of(value: pl.Expr) -> pl.Expr:
    """Convert a date to days, or a timestamp to microseconds, since 1970; an interval to microseconds."""
    return value.to_physical().cast(pl.Int64)


def moment(count: pl.Expr, type: DataType) -> LoweredExpression:
    """Convert a count from `count_of` to a date or timestamp; fails outside the years 1 to 9999."""
    first, last = (_FIRST_DAY, _LAST_DAY) if type == DATE else (FIRST_MICROSECOND, LAST_MICROSECOND)
    outside = (count < first) | (count > last)
    if type != DATE:
        return LoweredExpression(count.cast(pl.Datetime("us")), None, outside)
    return LoweredExpression(count.cast(pl.Int32, strict=False).cast(pl.Date), None, outside)


_DAY = INTERVAL_UNITS[0]
SAFE_FLOAT = 9.2e18
"""Cut to whole numbers, floats below this are far from the ends of int64."""


def of_intervals(call: CallTerm) -> bool:
    """Return whether a call of arithmetic has intervals among its types."""
    return any(isinstance(term.type, IntervalType) for term in (call, *call.arguments))


def _span(micros: pl.Expr, fails: pl.Expr | None) -> LoweredExpression:
    return LoweredExpression(micros.cast(pl.Duration("us")), None, fails)


def sum_of_counts(a: pl.Expr, b: pl.Expr) -> LoweredExpression:
    """Add microseconds of intervals; fails beyond 64 bits."""
    total = a + b
    # The sum has wrapped where its sign differs from that of both operands.
    return _span(total, ((a ^ total) & (b ^ total)) < 0)


def _difference(a: pl.Expr, b: pl.Expr) -> LoweredExpression:
    rest = a - b
    return _span(rest, ((a ^ b) & (a ^ rest)) < 0)


def time_sum(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    """Lower a sum or a difference of which intervals are a part."""
    (a, b), plus = (count_of(one.value) for one in arguments), call.function.name == "add"
    first, second = (isinstance(argument.type, IntervalType) for argument in call.arguments)
    if first and second:
        return (sum_of_counts if plus else _difference)(a, b)
    if isinstance(call.type, IntervalType):
        # The times of a calendar are close together.
        return _span((a - b) * (_DAY if call.arguments[0].type == DATE else 1), None)
    count, step = (b, a) if first else (a, b)
    if call.type == DATE:
        step = count_of(cut_to_step(step, _DAY)) // _DAY
    # What wraps in 64 bits is not within the years either.
    return moment(count + step if plus else count - step, call.type)


def interval_product(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    """Lower a product of an interval and a whole number."""
    if not any(isinstance(argument.type, IntegerType) for argument in call.arguments):
        raise NotLowered("an interval times a fraction has no columnar form")
    a, b = (count_of(one.value) for one in arguments)
    return _span(a * b, (a.cast(pl.Float64) * b.cast(pl.Float64)).abs() > SAFE_FLOAT)


def interval_sign(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    """Lower the negation or the absolute value of an interval."""
    micros = count_of(arguments[0].value)
    return _span(-micros if call.function.name == "negate" else micros.abs(), micros == RANGES[INT64][0])


def cut_to_step(span: pl.Expr, step: int) -> pl.Expr:
    """Drop what is less than a whole step, in microseconds, towards zero."""
    micros = count_of(span)
    rest = micros % step
    rest = pl.when((rest != 0) & (micros < 0)).then(rest - step).otherwise(rest)
    return (micros - rest).cast(pl.Duration("us"))
