"""More of Spark's date and timestamp functions: weeks, units, zones, instants as numbers."""

from __future__ import annotations

import math
from calendar import monthrange
from collections.abc import Callable, Sequence
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.function_records import function
from headrace.expr.functions.cast_columns import (
    in_utc,
)
from headrace.expr.functions.integer_columns import (
    count_of,
    moment,
)
from headrace.expr.functions.intervals import shift
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    constant_value,
    dtype_of,
)
from headrace.expr.time_patterns import DAYS, MONTHS
from headrace.expr.types import (
    BOOL,
    DATE,
    FLOAT64,
    INT32,
    STR,
    TIMESTAMP,
)
from headrace.expr.typing_rules import (
    CallTerm,
    Function,
)
from headrace.requirements import F, pl

if TYPE_CHECKING:
    pass


_SECONDS_OF_31_DAYS = 31 * 86_400

# -- months and weeks ------------------------------------------------------------------------------


def months_between(one: datetime, other: datetime, rounded: bool) -> float:
    """Return the months from `other` to `one`: whole for equal days, or if both are a month's last day."""
    months = float((one.year - other.year) * 12 + one.month - other.month)
    last = [t.day == monthrange(t.year, t.month)[1] for t in (one, other)]
    if one.day == other.day or all(last):
        return months
    seconds = (one.day - other.day) * 86_400 + _second_of_day(one) - _second_of_day(other)
    found = months + seconds / _SECONDS_OF_31_DAYS
    return math.floor(found * 1e8 + 0.5) / 1e8 if rounded else found


def _second_of_day(t: datetime) -> int:
    return t.hour * 3600 + t.minute * 60 + t.second


_WEEKDAYS = {
    **{name.upper()[:size]: at for at, name in enumerate(DAYS) for size in (2, 3)},
    **{name.upper(): at for at, name in enumerate(DAYS)},
}


@lru_cache(maxsize=64)
def weekday_of(name: str) -> int:
    """Return the number of a weekday by name or its first two or three letters; Monday is 0."""
    found = _WEEKDAYS.get(name.upper())
    if found is None:
        raise EvaluationError(f"{name!r} is no day of the week")
    return found


def next_day(day: date, weekday: int) -> date:
    return shift(day, timedelta(days=(weekday - day.weekday() - 1) % 7 + 1))


# -- numbers ---------------------------------------------------------------------------------------


def add_days(day: date, count: int) -> date:
    return shift(day, timedelta(days=count)) if abs(count) < 10_000_000 else _out_of_range(day, count, "days")


def add_months(day: date, count: int) -> date:
    """Return the day `count` months later, or that month's last day if the month is too short."""
    months = day.year * 12 + day.month - 1 + count
    if not 12 <= months < 120_000:
        _out_of_range(day, count, "months")
    year, month = divmod(months, 12)
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def _out_of_range(day: date, count: int, unit: str) -> Any:
    raise_overflow(f"{day} + {count} {unit}", "date")


def last_day(day: date) -> date:
    return day.replace(day=monthrange(day.year, day.month)[1])


def make_date(year: int, month: int, day: int) -> date:
    """Return a date. Raises `EvaluationError` if it does not exist."""
    try:
        return date(year, month, day)
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"there is no day {year}-{month}-{day}") from error


def date_from_unix(days: int) -> date:
    return add_days(EPOCH.date(), days)


# -- on columns -------------------------------------------------------------------------------


_FIRST_MONTH, END_OF_MONTHS = 12, 120_000
"""Months since the year 0 of the first one, and after the last one, that Python has."""


def _days_later_columns(sign: int) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        day, count = (a.value for a in arguments)
        return moment(count_of(day) + sign * count.cast(pl.Int64), DATE)

    return lowering


def months_later(day: pl.Expr, count: pl.Expr) -> LoweredExpression:
    """Move a date by months, to the last day if the month is too short."""
    month = day.dt.year().cast(pl.Int64) * 12 + day.dt.month().cast(pl.Int64) - 1 + count
    within = (month >= _FIRST_MONTH) & (month < END_OF_MONTHS)
    month = pl.when(within).then(month)
    first = pl.date(month // 12, month % 12 + 1, 1)
    last = first.dt.days_in_month()
    by = pl.min_horizontal(day.dt.day(), last).cast(pl.Int32) - 1
    made = (first.to_physical() + by).cast(pl.Date)
    return LoweredExpression(pl.when(within & by.is_not_null()).then(made), None, ~within)


def _add_months_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    day, count = (a.value for a in arguments)
    return months_later(day, count.cast(pl.Int64))


def _next_day_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    name = constant_value(call.arguments[1])
    if not isinstance(name, str):
        raise NotLowered("next_day() has a columnar form only for a constant day of the week")
    day = arguments[0].value
    since = (weekday_of(name) - day.dt.weekday().cast(pl.Int64)) % 7  # Polars counts from 1
    return moment(count_of(day) + since + 1, DATE)


def _named_columns(names: Sequence[str], number: Callable[[pl.Expr], pl.Expr]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        at = number(arguments[0].value)
        places = list(range(1, len(names) + 1))
        made = at.cast(pl.Int32).replace_strict(
            places, [name[:3] for name in names], return_dtype=pl.String()
        )
        return LoweredExpression(made)

    return lowering


def _make_date_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    year, month, day = (a.value.cast(pl.Int64) for a in arguments)
    sound = year.is_between(1, 9999) & month.is_between(1, 12)
    first = pl.date(pl.when(sound).then(year), pl.when(sound).then(month), 1)
    sound &= day.is_between(1, first.dt.days_in_month().cast(pl.Int64)).fill_null(day.is_null())
    made = (first.to_physical() + (day - 1).cast(pl.Int32, strict=False)).cast(pl.Date)
    return LoweredExpression(pl.when(sound).then(made), None, ~sound)


# -- numbers ---------------------------------------------------------------------------------------


def _number_columns(of: Callable[[pl.Expr], Any], bounds: tuple[int, int]) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        return LoweredExpression(of(arguments[0].value).cast(dtype_of(call.type)), bounds)

    return lowering


NAMES: dict[str, Any] = {
    "x_day_names": tuple(name[:3] for name in DAYS),
    "x_month_names": tuple(name[:3] for name in MONTHS),
    "x_add_days": add_days,
}


FUNCTIONS: tuple[Function, ...] = (
    function(
        "weekofyear",
        "ISO 8601 week number.",
        (DATE,),
        INT32,
        "{0}.isocalendar()[1]",
        example="date('2024-12-31')",
        catalyst="WeekOfYear",
        columns=_number_columns(lambda day: day.dt.week(), (1, 53)),
    ),
    function(
        "yearofweek",
        "Year of the ISO 8601 week.",
        (DATE,),
        INT32,
        "{0}.isocalendar()[0]",
        example="date('2024-12-31')",
        catalyst="YearOfWeek",
        columns=_number_columns(lambda day: day.dt.iso_year(), (0, 10000)),
        spark=lambda call, arguments: F.extract(F.lit("YEAROFWEEK"), arguments[0]),
    ),
    function(
        "dayname",
        "Day of the week, in three letters.",
        (DATE,),
        STR,
        "x_day_names[{0}.weekday()]",
        example="date('2024-02-29')",
        catalyst="DayName",
        columns=_named_columns(DAYS, lambda day: day.dt.weekday()),
        keeps_size=True,
    ),
    function(
        "monthname",
        "Month, in three letters.",
        (DATE,),
        STR,
        "x_month_names[{0}.month - 1]",
        example="date('2024-02-29')",
        catalyst="MonthName",
        columns=_named_columns(MONTHS, lambda day: day.dt.month()),
        keeps_size=True,
    ),
    function(
        "next_day",
        "The next date on a day of the week.",
        (DATE, STR),
        DATE,
        next_day,
        fallible=True,
        prepared={1: weekday_of},
        example="date('2024-02-29'), 'Mon'",
        catalyst="NextDay",
        columns=_next_day_columns,
    ),
    function(
        "months_between",
        "Months from the second time to the first, in 31sts; rounded to 8 digits if true.",
        (TIMESTAMP, TIMESTAMP, BOOL),
        FLOAT64,
        months_between,
        defaults=(True,),
        example="timestamp('2024-03-31'), timestamp('2024-02-29'), lit(True)",
        catalyst="MonthsBetween",
        spark=in_utc("months_between"),
    ),
    function(
        "date_add",
        "The date some days later.",
        (DATE, INT32),
        DATE,
        "x_add_days({0}, {1})",
        fallible=True,
        example="date('2024-02-28'), 2",
        catalyst="DateAdd",
        columns=_days_later_columns(1),
    ),
    function(
        "date_sub",
        "The date some days earlier.",
        (DATE, INT32),
        DATE,
        "x_add_days({0}, -{1})",
        fallible=True,
        example="date('2024-03-01'), 1",
        catalyst="DateSub",
        columns=_days_later_columns(-1),
    ),
    function(
        "add_months",
        "The date some months later, at most the last of that month.",
        (DATE, INT32),
        DATE,
        add_months,
        fallible=True,
        example="date('2024-01-31'), 1",
        catalyst="AddMonths",
        columns=_add_months_columns,
    ),
    function(
        "last_day",
        "Last day of the month.",
        (DATE,),
        DATE,
        last_day,
        example="date('2024-02-01')",
        catalyst="LastDay",
        columns=lambda call, arguments: LoweredExpression(arguments[0].value.dt.month_end()),
    ),
    function(
        "make_date",
        "The date of a year, month and day.",
        (INT32, INT32, INT32),
        DATE,
        make_date,
        fallible=True,
        example="2024, 2, 29",
        catalyst="MakeDate",
        columns=_make_date_columns,
    ),
    function(
        "unix_date",
        "Days since 1970-01-01.",
        (DATE,),
        INT32,
        "({0}.toordinal() - 719163)",
        example="date('1970-01-02')",
        catalyst="UnixDate",
        columns=_number_columns(count_of, (-(10**6), 10**7)),
    ),
    function(
        "date_from_unix_date",
        "The date some days after 1970-01-01.",
        (INT32,),
        DATE,
        date_from_unix,
        fallible=True,
        example="1",
        catalyst="DateFromUnixDate",
        columns=lambda call, arguments: moment(arguments[0].value.cast(pl.Int64), DATE),
    ),
)
