"""Date and timestamp functions, computed on days and microseconds since 1970."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta

import polars as pl

from penstock.engine.columnar.column_types import NotLowered
from penstock.engine.columnar.lowered_expression import LoweredExpression, Lowering
from penstock.expr.functions.arithmetic import RANGES
from penstock.expr.types import DATE, INT32, INT64, TIMESTAMP, DataType
from penstock.expr.typing_rules import CallTerm

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


def _count(value: pl.Expr) -> pl.Expr:
    """Convert a date to days, or a timestamp to microseconds, since 1970."""
    return value.to_physical().cast(pl.Int64)


def _moment(count: pl.Expr, type: DataType) -> LoweredExpression:
    """Convert a count from `_count` to a date or timestamp; fails outside the years 1 to 9999."""
    first, last = (_FIRST_DAY, _LAST_DAY) if type == DATE else (_FIRST, _LAST)
    outside = (count < first) | (count > last)
    if type != DATE:
        return LoweredExpression(count.cast(pl.Datetime("us")), None, outside)
    return LoweredExpression(count.cast(pl.Int32, strict=False).cast(pl.Date), None, outside)


def _shift(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    (span,) = call.options
    assert isinstance(span, timedelta)
    step = span.days if call.type == DATE else span // _MICROSECOND
    if abs(step) > _LAST - _FIRST:
        raise NotLowered("a shift by more than there are years has no columnar form")
    return _moment(_count(arguments[0].value) + step, call.type)


def _micros_since(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = (_count(a.value) for a in arguments)
    return LoweredExpression(one - other, RANGES[INT64])


def _seconds_since(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = (_count(a.value) for a in arguments)
    return LoweredExpression((one - other).cast(pl.Float64) / 1000000.0)


def _days_since(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = (_count(a.value) for a in arguments)
    return LoweredExpression((one - other).cast(pl.Int32), RANGES[INT32])


def _window_start(value: pl.Expr, width: timedelta) -> LoweredExpression:
    count = _count(value)
    return _moment(count - count % (width // _MICROSECOND), TIMESTAMP)


def _tumble(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    (width,) = call.options
    assert isinstance(width, timedelta)
    if width > timedelta(days=10_000):
        raise NotLowered("a window of that length has no columnar form")
    return _window_start(arguments[0].value, width)


def _truncate(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    unit = str(call.options[0])
    if unit not in _WIDTHS or call.type == DATE:
        raise NotLowered(f"truncate() to a {unit} has no columnar form")
    return _window_start(arguments[0].value, _WIDTHS[unit])


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
