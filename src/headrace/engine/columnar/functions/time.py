"""Functions of dates, timestamps and intervals, computed on days and microseconds (since 1970)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta

import polars as pl

from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    dtype_of,
    quotient,
)
from headrace.expr.types import (
    DATE,
    INT32,
    INT64,
    INTERVAL_UNITS,
    RANGES,
    TIMESTAMP,
    DataType,
    IntegerType,
    IntervalType,
)
from headrace.expr.typing_rules import CallTerm

_MICROSECOND = timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)
_FIRST = (datetime.min - _EPOCH) // _MICROSECOND
_LAST = (datetime.max - _EPOCH) // _MICROSECOND
_FIRST_DAY, _LAST_DAY = (date.min - date(1970, 1, 1)).days, (date.max - date(1970, 1, 1)).days
_WIDTHS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}


def count_of(value: pl.Expr) -> pl.Expr:
    """Convert a date to days, or a timestamp to microseconds, since 1970; an interval to microseconds."""
    return value.to_physical().cast(pl.Int64)


def moment(count: pl.Expr, type: DataType) -> LoweredExpression:
    """Convert a count from `count_of` to a date or timestamp; fails outside the years 1 to 9999."""
    first, last = (_FIRST_DAY, _LAST_DAY) if type == DATE else (_FIRST, _LAST)
    outside = (count < first) | (count > last)
    if type != DATE:
        return LoweredExpression(count.cast(pl.Datetime("us")), None, outside)
    return LoweredExpression(count.cast(pl.Int32, strict=False).cast(pl.Date), None, outside)


def _shift(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    (span,) = call.options
    assert isinstance(span, timedelta)
    if isinstance(call.type, IntervalType):
        return _sum(count_of(arguments[0].value), pl.lit(span // _MICROSECOND, dtype=pl.Int64()))
    step = span.days if call.type == DATE else span // _MICROSECOND
    if abs(step) > _LAST - _FIRST:
        raise NotLowered("a shift by more than there are years has no columnar form")
    return moment(count_of(arguments[0].value) + step, call.type)


# -- intervals -----------------------------------------------------------------------------

_SAFE = 9.2e18
_DAY = INTERVAL_UNITS[0]


def of_intervals(call: CallTerm) -> bool:
    """Return whether a call of arithmetic has intervals among its types."""
    return any(isinstance(term.type, IntervalType) for term in (call, *call.arguments))


def _span(micros: pl.Expr, fails: pl.Expr | None) -> LoweredExpression:
    return LoweredExpression(micros.cast(pl.Duration("us")), None, fails)


def _sum(a: pl.Expr, b: pl.Expr) -> LoweredExpression:
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
        return (_sum if plus else _difference)(a, b)
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
    return _span(a * b, (a.cast(pl.Float64) * b.cast(pl.Float64)).abs() > _SAFE)


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


# -- times ---------------------------------------------------------------------------------


def _micros_since(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = (count_of(a.value) for a in arguments)
    return LoweredExpression(one - other, RANGES[INT64])


def _seconds_since(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = (count_of(a.value) for a in arguments)
    return LoweredExpression(quotient((one - other).cast(pl.Float64), 1000000.0))


def _days_since(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = (count_of(a.value) for a in arguments)
    return LoweredExpression((one - other).cast(pl.Int32), RANGES[INT32])


def _window_start(value: pl.Expr, width: timedelta) -> LoweredExpression:
    count = count_of(value)
    return moment(count - count % (width // _MICROSECOND), TIMESTAMP)


def _tumble(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    (width,) = call.options
    assert isinstance(width, timedelta)
    if width > timedelta(days=10_000):
        raise NotLowered("a window of that length has no columnar form")
    return _window_start(arguments[0].value, width)


def _truncate(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    unit, value = str(call.options[0]), arguments[0].value
    if unit in _WIDTHS:
        return _window_start(value, _WIDTHS[unit])
    if unit == "week":
        day = value.dt.date()
        monday = moment(count_of(day) - (day.dt.weekday().cast(pl.Int64) - 1), DATE)
        return LoweredExpression(monday.value.cast(dtype_of(call.type)), None, monday.fails)
    month = {"year": pl.lit(1), "quarter": (value.dt.month() - 1) // 3 * 3 + 1, "month": value.dt.month()}[
        unit
    ]
    return LoweredExpression(pl.date(value.dt.year(), month, 1).cast(dtype_of(call.type)))


def _field(read: Callable[[pl.Expr], pl.Expr], greatest: int = 9999) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        return LoweredExpression(read(arguments[0].value).cast(pl.Int32), (0, greatest))

    return lowering


LOWERINGS: Mapping[str, Lowering] = {
    "shift": _shift,
    "micros_since": _micros_since,
    "seconds_since": _seconds_since,
    "days_since": _days_since,
    "tumble": _tumble,
    "truncate": _truncate,
    "year": _field(lambda value: value.dt.year()),
    "quarter": _field(lambda value: value.dt.quarter()),
    "month": _field(lambda value: value.dt.month()),
    "day": _field(lambda value: value.dt.day()),
    "day_of_week": _field(lambda value: value.dt.weekday() % 7 + 1),
    "weekday": _field(lambda value: value.dt.weekday() - 1),
    "day_of_year": _field(lambda value: value.dt.ordinal_day()),
    "hour": _field(lambda value: value.dt.hour()),
    "minute": _field(lambda value: value.dt.minute()),
    "second": _field(lambda value: value.dt.second()),
    "microsecond": _field(lambda value: value.dt.microsecond(), 999_999),
}
