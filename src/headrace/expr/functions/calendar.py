"""More of Spark's functions of dates and timestamps: weeks, units, zones, instants as numbers."""

from __future__ import annotations

import math
from calendar import monthrange
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.decimal_arithmetic import EXACT
from headrace.expr.function_bases import fixed
from headrace.expr.functions.time import add_months, shift
from headrace.expr.time_patterns import DAYS, MONTHS
from headrace.expr.time_zones import from_utc, other_clock, to_utc, zone_of
from headrace.expr.types import BOOL, DATE, FLOAT64, INT32, INT64, STR, TIMESTAMP, TIMESTAMP_NTZ, DecimalType
from headrace.expr.typing_rules import Arguments, Function, Signature

_MICROSECOND = timedelta(microseconds=1)
_SECONDS_OF_31_DAYS = 31 * 86_400

# -- units ---------------------------------------------------------------------------------------

_LENGTHS = {
    "MICROSECOND": _MICROSECOND,
    "MILLISECOND": timedelta(milliseconds=1),
    "SECOND": timedelta(seconds=1),
    "MINUTE": timedelta(minutes=1),
    "HOUR": timedelta(hours=1),
    "DAY": timedelta(days=1),
    "DAYOFYEAR": timedelta(days=1),
    "WEEK": timedelta(weeks=1),
}
_MONTHS = {"MONTH": 1, "QUARTER": 3, "YEAR": 12}
Unit = tuple[timedelta | None, int]


@lru_cache(maxsize=64)
def unit_of(name: str) -> Unit:
    """Return the length of a unit, or None and its months. Raises `EvaluationError` for an unknown one."""
    upper = name.upper()
    if upper not in _LENGTHS and upper not in _MONTHS:
        raise EvaluationError(
            f"{name!r} is no unit of time", fix=f"one of {', '.join((*_LENGTHS, *_MONTHS))}"
        )
    return _LENGTHS.get(upper), _MONTHS.get(upper, 0)


def units_between(unit: Unit, start: datetime, end: datetime) -> int:
    """Return how many whole units are between two times, negative if the first is later."""
    length, months = unit
    if length is not None:
        span = end - start
        return span // length if span >= timedelta() else -(-span // length)
    # As Java counts: days first, then months of 32 days.
    last = end.date()
    if last > start.date() and end.time() < start.time():
        last -= timedelta(days=1)
    elif last < start.date() and end.time() > start.time():
        last += timedelta(days=1)
    days = _in_months_of_32_days(last) - _in_months_of_32_days(start.date())
    return days // (32 * months) if days >= 0 else -(-days // (32 * months))


def _in_months_of_32_days(day: date) -> int:
    return (day.year * 12 + day.month) * 32 + day.day


def add_units(unit: Unit, count: int, moment: datetime) -> datetime:
    """Add units to a time. Raises outside the years 1 to 9999."""
    length, months = unit
    if length is None:
        day = add_months(moment.date(), count * months)
        return moment.replace(year=day.year, month=day.month, day=day.day)
    try:
        return shift(moment, count * length)
    except OverflowError:
        raise_overflow(f"{moment} + {count} units", "timestamp")


# -- months and weeks ------------------------------------------------------------------------------


def months_between(one: datetime, other: datetime, rounded: bool) -> float:
    """Return the months from the second to the first; a whole number of the same day or of two last ones."""
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
    """Return the number of a day of the week, by two or three letters or its name; Monday is 0."""
    found = _WEEKDAYS.get(name.upper())
    if found is None:
        raise EvaluationError(f"{name!r} is no day of the week")
    return found


def next_day(day: date, weekday: int) -> date:
    return shift(day, timedelta(days=(weekday - day.weekday() - 1) % 7 + 1))


# -- numbers ---------------------------------------------------------------------------------------


def _from_number(count: int, unit: timedelta) -> datetime:
    try:
        return EPOCH + count * unit
    except OverflowError:
        raise_overflow(count, "timestamp")


def timestamp_seconds(count: int) -> datetime:
    return _from_number(count, timedelta(seconds=1))


def timestamp_millis(count: int) -> datetime:
    return _from_number(count, timedelta(milliseconds=1))


def timestamp_micros(count: int) -> datetime:
    return _from_number(count, _MICROSECOND)


def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, seconds: Decimal) -> datetime:
    """Return a time of the calendar; 60 seconds are the next minute.

    Raises `EvaluationError` if there is none.
    """
    micros = int(seconds.scaleb(6, EXACT))
    try:
        if micros < 0 or micros > 60_000_000:
            raise ValueError(seconds)
        start = datetime(year, month, day, hour, minute, tzinfo=UTC)
        return start + micros * _MICROSECOND
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"there is no time {year}-{month}-{day} {hour}:{minute}:{seconds}") from error


def try_make_timestamp(*parts: Any) -> datetime | None:
    try:
        return make_timestamp(*parts)
    except EvaluationError:
        return None


def second_with_fraction(t: datetime) -> Decimal:
    return Decimal(t.second * 1_000_000 + t.microsecond).scaleb(-6, EXACT)


NAMES: dict[str, Any] = {
    "x_add_units": add_units,
    "x_day_names": tuple(name[:3] for name in DAYS),
    "x_from_utc": from_utc,
    "x_make_timestamp": make_timestamp,
    "x_microsecond": _MICROSECOND,
    "x_month_names": tuple(name[:3] for name in MONTHS),
    "x_months_between": months_between,
    "x_next_day": next_day,
    "x_second_with_fraction": second_with_fraction,
    "x_other_clock": other_clock,
    "x_timestamp_micros": timestamp_micros,
    "x_timestamp_millis": timestamp_millis,
    "x_timestamp_seconds": timestamp_seconds,
    "x_to_utc": to_utc,
    "x_try_make_timestamp": try_make_timestamp,
    "x_units_between": units_between,
}

_PARTS = (INT32, INT32, INT32, INT32, INT32, DecimalType(16, 6))
_MADE = "({0}, {1}, {2}, {3}, {4}, {5})"
_ZONE: dict[int, Callable[[str], object]] = {1: zone_of}

_TIMESTAMPADD = fixed(
    "timestampadd",
    "The time some units later.",
    (STR, INT64, TIMESTAMP),
    TIMESTAMP,
    "x_add_units({0}, {1}, {2})",
    fallible=True,
    prepared={0: unit_of},
    constant=(0,),
)


def _keeping_zone(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    """Typing rule of `timestampadd`: a time without a zone stays one."""
    signature = _TIMESTAMPADD.rule(arguments, options)
    if arguments[2].type != TIMESTAMP_NTZ:
        return signature
    return Signature((STR, INT64, TIMESTAMP_NTZ), TIMESTAMP_NTZ, signature.nullable)


FUNCTIONS: tuple[Function, ...] = (
    fixed("weekofyear", "ISO 8601 week number.", (DATE,), INT32, "{0}.isocalendar()[1]"),
    fixed("yearofweek", "Year of the ISO 8601 week.", (DATE,), INT32, "{0}.isocalendar()[0]"),
    fixed("dayname", "Day of the week, in three letters.", (DATE,), STR, "x_day_names[{0}.weekday()]"),
    fixed("monthname", "Month, in three letters.", (DATE,), STR, "x_month_names[{0}.month - 1]"),
    fixed(
        "next_day",
        "The next date on a day of the week.",
        (DATE, STR),
        DATE,
        "x_next_day({0}, {1})",
        fallible=True,
        prepared={1: weekday_of},
    ),
    fixed(
        "months_between",
        "Months from the second time to the first, in 31sts; rounded to 8 digits if true.",
        (TIMESTAMP, TIMESTAMP, BOOL),
        FLOAT64,
        "x_months_between({0}, {1}, {2})",
    ),
    fixed(
        "timestampdiff",
        "Whole units from the first time to the second.",
        (STR, TIMESTAMP, TIMESTAMP),
        INT64,
        "x_units_between({0}, {1}, {2})",
        prepared={0: unit_of},
        constant=(0,),
    ),
    replace(_TIMESTAMPADD, rule=_keeping_zone),
    fixed(
        "from_utc_timestamp",
        "Local time in the zone at that moment.",
        (TIMESTAMP, STR),
        TIMESTAMP,
        "x_from_utc({0}, {1})",
        fallible=True,
        prepared=_ZONE,
    ),
    fixed(
        "to_utc_timestamp",
        "The moment of a local time in the zone.",
        (TIMESTAMP, STR),
        TIMESTAMP,
        "x_to_utc({0}, {1})",
        fallible=True,
        prepared=_ZONE,
    ),
    fixed(
        "convert_timezone",
        "Time of a clock in the second zone, at a time of a clock in the first.",
        (STR, STR, TIMESTAMP_NTZ),
        TIMESTAMP_NTZ,
        "x_other_clock({2}, {0}, {1})",
        fallible=True,
        prepared={0: zone_of, 1: zone_of},
    ),
    fixed(
        "unix_micros", "Microseconds since 1970.", (TIMESTAMP,), INT64, "(({0} - x_epoch) // x_microsecond)"
    ),
    fixed(
        "unix_millis",
        "Milliseconds since 1970, rounded down.",
        (TIMESTAMP,),
        INT64,
        "(({0} - x_epoch) // x_microsecond // 1000)",
    ),
    *(
        fixed(
            f"timestamp_{unit}",
            f"The time that many {meaning} after 1970.",
            (INT64,),
            TIMESTAMP,
            f"x_timestamp_{unit}({{0}})",
            fallible=True,
        )
        for unit, meaning in (("seconds", "seconds"), ("millis", "milliseconds"), ("micros", "microseconds"))
    ),
    fixed(
        "make_timestamp",
        "The time of a year, month, day, hour, minute and seconds.",
        _PARTS,
        TIMESTAMP,
        f"x_make_timestamp{_MADE}",
        fallible=True,
    ),
    fixed(
        "try_make_timestamp",
        "As `make_timestamp`; null if there is no such time.",
        _PARTS,
        TIMESTAMP,
        f"x_try_make_timestamp{_MADE}",
        nullable=True,
    ),
    fixed(
        "second_with_fraction",
        "Second of the minute, with microseconds.",
        (TIMESTAMP,),
        DecimalType(8, 6),
        "x_second_with_fraction({0})",
    ),
)
