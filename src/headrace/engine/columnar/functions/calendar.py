"""Functions of the calendar: days and months, weeks, instants as numbers, parts of intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

import polars as pl

from headrace.engine.columnar.functions import decimals
from headrace.engine.columnar.functions.time import count_of, moment
from headrace.errors import EvaluationError
from headrace.expr.functions.calendar import unit_of, weekday_of
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    constant_value,
    dtype_of,
    either_condition,
)
from headrace.expr.time_patterns import DAYS, MONTHS
from headrace.expr.types import DATE, INT64, INTERVAL_UNITS, RANGES, TIMESTAMP
from headrace.expr.typing_rules import CallTerm

Arguments = Sequence[LoweredExpression]
_MICROSECOND = timedelta(microseconds=1)
_SECOND = 1_000_000
_FIRST_MONTH, _END_OF_MONTHS = 12, 120_000
"""Months since the year 0 of the first one, and after the last one, that Python has."""


def _days_later(sign: int) -> Lowering:
    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        day, count = (a.value for a in arguments)
        return moment(count_of(day) + sign * count.cast(pl.Int64), DATE)

    return lowering


def _months_later(day: pl.Expr, count: pl.Expr) -> LoweredExpression:
    """Move a date by months, to the last day of the month where that has not as many."""
    month = day.dt.year().cast(pl.Int64) * 12 + day.dt.month().cast(pl.Int64) - 1 + count
    within = (month >= _FIRST_MONTH) & (month < _END_OF_MONTHS)
    month = pl.when(within).then(month)
    first = pl.date(month // 12, month % 12 + 1, 1)
    last = first.dt.days_in_month()
    by = pl.min_horizontal(day.dt.day(), last).cast(pl.Int32) - 1
    made = (first.to_physical() + by).cast(pl.Date)
    return LoweredExpression(pl.when(within & by.is_not_null()).then(made), None, ~within)


def _add_months(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    day, count = (a.value for a in arguments)
    return _months_later(day, count.cast(pl.Int64))


def _next_day(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    name = constant_value(call.arguments[1])
    if not isinstance(name, str):
        raise NotLowered("next_day() has a columnar form only for a constant day of the week")
    day = arguments[0].value
    since = (weekday_of(name) - day.dt.weekday().cast(pl.Int64)) % 7  # Polars counts from 1
    return moment(count_of(day) + since + 1, DATE)


def _named(names: Sequence[str], number: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        at = number(arguments[0].value)
        places = list(range(1, len(names) + 1))
        made = at.cast(pl.Int32).replace_strict(
            places, [name[:3] for name in names], return_dtype=pl.String()
        )
        return LoweredExpression(made)

    return lowering


def _make_date(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    year, month, day = (a.value.cast(pl.Int64) for a in arguments)
    sound = year.is_between(1, 9999) & month.is_between(1, 12)
    first = pl.date(pl.when(sound).then(year), pl.when(sound).then(month), 1)
    sound &= day.is_between(1, first.dt.days_in_month().cast(pl.Int64)).fill_null(day.is_null())
    made = (first.to_physical() + (day - 1).cast(pl.Int32, strict=False)).cast(pl.Date)
    return LoweredExpression(pl.when(sound).then(made), None, ~sound)


# -- units ---------------------------------------------------------------------------------------


def _unit(call: CallTerm) -> tuple[timedelta | None, int]:
    name = constant_value(call.arguments[0])
    try:
        return unit_of(str(name))
    except EvaluationError as error:
        raise NotLowered(f"{call.function.name}() has no columnar form") from error


def _units_later(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    length, months = _unit(call)
    count, time = arguments[1].value.cast(pl.Int64), arguments[2].value
    if length is None:
        few = count.is_between(-_END_OF_MONTHS, _END_OF_MONTHS)
        day = _months_later(time.dt.date(), pl.when(few).then(count) * months)
        clock = count_of(time) % INTERVAL_UNITS[0]
        value = (count_of(day.value) * INTERVAL_UNITS[0] + clock).cast(pl.Datetime("us"))
        return LoweredExpression(value, None, either_condition(~few, day.fails))
    step = length // _MICROSECOND
    few = count.is_between(-(2**60) // step, 2**60 // step)
    made = moment(count_of(time) + pl.when(few).then(count) * step, call.type)
    return LoweredExpression(made.value, None, either_condition(~few, made.fails))


def _cut_quotient(count: pl.Expr, by: int) -> pl.Expr:
    return pl.when(count >= 0).then(count // by).otherwise(0 - (0 - count) // by)


def _units_between(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    length, months = _unit(call)
    start, end = (count_of(a.value) for a in arguments[1:])
    if length is not None:
        return LoweredExpression(_cut_quotient(end - start, length // _MICROSECOND), RANGES[INT64])
    # As Java counts: days first, then months of 32 days.
    day = INTERVAL_UNITS[0]
    first, last, earlier = start // day, end // day, end % day < start % day
    later = end % day > start % day
    last = last - ((last > first) & earlier).cast(pl.Int64) + ((last < first) & later).cast(pl.Int64)
    days = _in_months_of_32_days(last) - _in_months_of_32_days(first)
    return LoweredExpression(_cut_quotient(days, 32 * months), RANGES[INT64])


def _in_months_of_32_days(days: pl.Expr) -> pl.Expr:
    day = days.cast(pl.Int32).cast(pl.Date)
    months = day.dt.year().cast(pl.Int64) * 12 + day.dt.month().cast(pl.Int64)
    return months * 32 + day.dt.day().cast(pl.Int64)


# -- numbers ---------------------------------------------------------------------------------------


def _since_1970(unit: int) -> Lowering:
    return lambda call, arguments: LoweredExpression(count_of(arguments[0].value) // unit, RANGES[INT64])


def _after_1970(unit: int) -> Lowering:
    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        count = arguments[0].value
        few = count.is_between(-(2**60) // unit, 2**60 // unit)
        made = moment(pl.when(few).then(count) * unit, TIMESTAMP)
        return LoweredExpression(made.value, None, either_condition(~few, made.fails))

    return lowering


def _number(of: Callable[[pl.Expr], Any], bounds: tuple[int, int]) -> Lowering:
    def lowering(call: CallTerm, arguments: Arguments) -> LoweredExpression:
        return LoweredExpression(of(arguments[0].value).cast(dtype_of(call.type)), bounds)

    return lowering


def _second_with_fraction(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    micros = count_of(arguments[0].value) % INTERVAL_UNITS[2]
    made = LoweredExpression(micros.cast(pl.Int128), (0, INTERVAL_UNITS[2] - 1))
    return decimals.fitting(made, 6, call.type)


def _interval_part(call: CallTerm, arguments: Arguments) -> LoweredExpression:
    (part,) = call.options
    assert isinstance(part, int)
    micros = count_of(arguments[0].value).cast(pl.Int128)
    rest = micros.abs() % INTERVAL_UNITS[part - 1] if part else micros.abs()
    size = rest if part == 3 else rest // INTERVAL_UNITS[part]
    value = pl.when(micros < 0).then(0 - size).otherwise(size)
    if part == 3:
        most = INTERVAL_UNITS[2] - 1
        return decimals.fitting(LoweredExpression(value, (-most, most)), 6, call.type)
    most = 2**63 // INTERVAL_UNITS[0] if part == 0 else 59
    return LoweredExpression(value.cast(dtype_of(call.type)), (-most, most))


LOWERINGS: Mapping[str, Lowering] = {
    "date_add": _days_later(1),
    "date_sub": _days_later(-1),
    "add_months": _add_months,
    "last_day": lambda call, arguments: LoweredExpression(arguments[0].value.dt.month_end()),
    "make_date": _make_date,
    "unix_date": _number(count_of, (-(10**6), 10**7)),
    "date_from_unix_date": lambda call, arguments: moment(arguments[0].value.cast(pl.Int64), DATE),
    "unix_seconds": _since_1970(_SECOND),
    "weekofyear": _number(lambda day: day.dt.week(), (1, 53)),
    "yearofweek": _number(lambda day: day.dt.iso_year(), (0, 10_000)),
    "dayname": _named(DAYS, lambda day: day.dt.weekday()),
    "monthname": _named(MONTHS, lambda day: day.dt.month()),
    "next_day": _next_day,
    "timestampdiff": _units_between,
    "timestampadd": _units_later,
    "unix_micros": _since_1970(1),
    "unix_millis": _since_1970(1000),
    "timestamp_seconds": _after_1970(_SECOND),
    "timestamp_millis": _after_1970(1000),
    "timestamp_micros": _after_1970(1),
    "second_with_fraction": _second_with_fraction,
    "interval_part": _interval_part,
}
