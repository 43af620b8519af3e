"""Instants as numbers since 1970, by their parts, in zones, and units of time between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import EPOCH, EXACT, raise_overflow
from headrace.expr.function_records import function, rule_of
from headrace.expr.functions import integer_columns
from headrace.expr.functions.calendar import END_OF_MONTHS, add_months, months_later
from headrace.expr.functions.cast_columns import (
    MICROSECONDS,
    in_utc,
    rest_of,
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
    either_condition,
)
from headrace.expr.time_texts import from_utc, other_clock, to_utc, zone_of
from headrace.expr.types import (
    INT32,
    INT64,
    INTERVAL_UNITS,
    RANGES,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DecimalType,
)
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Function,
    LiteralTerm,
    Signature,
    SparkForm,
)
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column


_MICROSECOND = timedelta(microseconds=1)


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
    """Return a unit's length, or None and its months. Raises `EvaluationError` for an unknown unit."""
    upper = name.upper()
    if upper not in _LENGTHS and upper not in _MONTHS:
        raise EvaluationError(
            f"{name!r} is no unit of time", fix=f"one of {', '.join((*_LENGTHS, *_MONTHS))}"
        )
    return _LENGTHS.get(upper), _MONTHS.get(upper, 0)


def units_between(unit: Unit, start: datetime, end: datetime) -> int:
    """Return the number of whole units between two times, negative if the first is later."""
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


def _from_number(count: int, unit: timedelta) -> datetime:
    try:
        return EPOCH + count * unit
    except OverflowError:
        raise_overflow(count, "timestamp")


def timestamp_seconds(count: int) -> datetime:
    return _from_number(count, timedelta(seconds=1))


def timestamp_millis(count: int) -> datetime:
    return _from_number(count, timedelta(milliseconds=1))


def make_timestamp(year: int, month: int, day: int, hour: int, minute: int, seconds: Decimal) -> datetime:
    """Return a timestamp; 60 seconds mean the next minute.

    Raises `EvaluationError` if it does not exist.
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


_SECOND = 1_000_000


def _unit(call: CallTerm) -> tuple[timedelta | None, int]:
    name = constant_value(call.arguments[0])
    try:
        return unit_of(str(name))
    except EvaluationError as error:
        raise NotLowered(f"{call.function.name}() has no columnar form") from error


def _of_unit_spark(name: str) -> SparkForm:
    """Lower to a Spark function with a constant unit."""

    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        unit = call.arguments[0]
        assert isinstance(unit, LiteralTerm)
        return in_utc(partial(getattr(F, name), str(unit.value)))(call, arguments[1:])

    return lowering


def _second_with_fraction_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    micros = rest_of(F.unix_micros(arguments[0]), MICROSECONDS["minute"]).cast("decimal(8,0)")
    return (micros * F.lit(0.000001).cast("decimal(6,6)")).cast("decimal(8,6)")


_PARTS = (INT32, INT32, INT32, INT32, INT32, DecimalType(16, 6))


_ZONE: dict[int, Callable[[str], object]] = {1: zone_of}


_PLAIN_RULE = rule_of("timestampadd", (STR, INT64, TIMESTAMP), TIMESTAMP, False, {0: unit_of}, (0,))


def _later_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    """Typing rule of `timestampadd`: a time without a zone stays without one."""
    signature = _PLAIN_RULE(arguments, options)
    if arguments[2].type != TIMESTAMP_NTZ:
        return signature
    return Signature((STR, INT64, TIMESTAMP_NTZ), TIMESTAMP_NTZ, signature.nullable)


def timestamp_micros(micros: int) -> datetime:
    """Return a timestamp from microseconds since 1970. Raises outside the years 1 to 9999."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise_overflow(micros, "timestamp")


def unix_seconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(seconds=1)


# -- on columns -------------------------------------------------------------------------------


def _units_later_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    length, months = _unit(call)
    count, time = arguments[1].value.cast(pl.Int64), arguments[2].value
    if length is None:
        few = count.is_between(-END_OF_MONTHS, END_OF_MONTHS)
        day = months_later(time.dt.date(), pl.when(few).then(count) * months)
        clock = count_of(time) % INTERVAL_UNITS[0]
        value = (count_of(day.value) * INTERVAL_UNITS[0] + clock).cast(pl.Datetime("us"))
        return LoweredExpression(value, None, either_condition(~few, day.fails))
    step = length // _MICROSECOND
    few = count.is_between(-(2**60) // step, 2**60 // step)
    made = moment(count_of(time) + pl.when(few).then(count) * step, call.type)
    return LoweredExpression(made.value, None, either_condition(~few, made.fails))


def _cut_quotient(count: pl.Expr, by: int) -> pl.Expr:
    return pl.when(count >= 0).then(count // by).otherwise(0 - (0 - count) // by)


def _units_between_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    length, months = _unit(call)
    start, end = (count_of(a.value) for a in arguments[1:])
    if length is not None:
        return LoweredExpression(_cut_quotient(end - start, length // _MICROSECOND), RANGES[INT64])
    # As Java counts: days first, then months of 32 days.
    day = INTERVAL_UNITS[0]
    first, last, earlier = start // day, end // day, end % day < start % day
    later = end % day > start % day
    last = last - ((last > first) & earlier).cast(pl.Int64) + ((last < first) & later).cast(pl.Int64)
    days = _in_months_of_32_days_columns(last) - _in_months_of_32_days_columns(first)
    return LoweredExpression(_cut_quotient(days, 32 * months), RANGES[INT64])


def _in_months_of_32_days_columns(days: pl.Expr) -> pl.Expr:
    day = days.cast(pl.Int32).cast(pl.Date)
    months = day.dt.year().cast(pl.Int64) * 12 + day.dt.month().cast(pl.Int64)
    return months * 32 + day.dt.day().cast(pl.Int64)


def _since_1970_columns(unit: int) -> Lowering:
    return lambda call, arguments: LoweredExpression(count_of(arguments[0].value) // unit, RANGES[INT64])


def _after_1970_columns(unit: int) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        count = arguments[0].value
        few = count.is_between(-(2**60) // unit, 2**60 // unit)
        made = moment(pl.when(few).then(count) * unit, TIMESTAMP)
        return LoweredExpression(made.value, None, either_condition(~few, made.fails))

    return lowering


seconds_after_1970 = _after_1970_columns(_SECOND)


def _second_with_fraction_columns(
    call: CallTerm, arguments: Sequence[LoweredExpression]
) -> LoweredExpression:
    micros = count_of(arguments[0].value) % INTERVAL_UNITS[2]
    made = LoweredExpression(micros.cast(pl.Int128), (0, INTERVAL_UNITS[2] - 1))
    return integer_columns.fitting(made, 6, call.type)


NAMES: dict[str, Any] = {
    "x_other_clock": other_clock,
    "x_microsecond": _MICROSECOND,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "timestampdiff",
        "Whole units from the first time to the second.",
        (STR, TIMESTAMP, TIMESTAMP),
        INT64,
        units_between,
        prepared={0: unit_of},
        constant=(0,),
        example="'DAY', timestamp('2024-02-28'), timestamp('2024-03-01')",
        columns=_units_between_columns,
        spark=_of_unit_spark("timestamp_diff"),
    ),
    function(
        "timestampadd",
        "The time some units later.",
        (STR, INT64, TIMESTAMP),
        TIMESTAMP,
        add_units,
        types=_later_rule,
        fallible=True,
        prepared={0: unit_of},
        constant=(0,),
        example="'HOUR', 2, timestamp('2024-02-29')",
        columns=_units_later_columns,
        spark=_of_unit_spark("timestamp_add"),
    ),
    function(
        "from_utc_timestamp",
        "Local time in the zone at that moment.",
        (TIMESTAMP, STR),
        TIMESTAMP,
        from_utc,
        fallible=True,
        prepared=_ZONE,
        example="timestamp('2024-07-01 12:00'), 'Europe/Paris'",
        catalyst="FromUTCTimestamp",
    ),
    function(
        "to_utc_timestamp",
        "The moment of a local time in the zone.",
        (TIMESTAMP, STR),
        TIMESTAMP,
        to_utc,
        fallible=True,
        prepared=_ZONE,
        example="timestamp('2024-07-01 14:00'), 'Europe/Paris'",
        catalyst="ToUTCTimestamp",
    ),
    function(
        "convert_timezone",
        "Time of a clock in the second zone, at a time of a clock in the first.",
        (STR, STR, TIMESTAMP_NTZ),
        TIMESTAMP_NTZ,
        "x_other_clock({2}, {0}, {1})",
        fallible=True,
        prepared={0: zone_of, 1: zone_of},
        example="'UTC', 'Asia/Tokyo', timestamp('2024-07-01 12:00').cast(hr.TimestampNtz)",
        catalyst="ConvertTimezone",
        keeps_size=True,
    ),
    function(
        "unix_micros",
        "Microseconds since 1970.",
        (TIMESTAMP,),
        INT64,
        "(({0} - x_epoch) // x_microsecond)",
        example="timestamp('1970-01-01 00:00:01')",
        catalyst="UnixMicros",
        columns=_since_1970_columns(1),
    ),
    function(
        "unix_millis",
        "Milliseconds since 1970, rounded down.",
        (TIMESTAMP,),
        INT64,
        "(({0} - x_epoch) // x_microsecond // 1000)",
        example="timestamp('1970-01-01 00:00:01')",
        catalyst="UnixMillis",
        columns=_since_1970_columns(1000),
    ),
    function(
        "timestamp_seconds",
        "The time that many seconds after 1970.",
        (INT64,),
        TIMESTAMP,
        timestamp_seconds,
        fallible=True,
        example="1",
        catalyst="SecondsToTimestamp",
        columns=seconds_after_1970,
    ),
    function(
        "timestamp_millis",
        "The time that many milliseconds after 1970.",
        (INT64,),
        TIMESTAMP,
        timestamp_millis,
        fallible=True,
        example="1",
        catalyst="MillisToTimestamp",
        columns=_after_1970_columns(1000),
    ),
    function(
        "make_timestamp",
        "The time of a year, month, day, hour, minute and seconds.",
        _PARTS,
        TIMESTAMP,
        make_timestamp,
        fallible=True,
        example="2024, 2, 29, 12, 30, lit(Decimal('1.5'))",
        spark=in_utc("make_timestamp"),
    ),
    function(
        "try_make_timestamp",
        "As `make_timestamp`; null if there is no such time.",
        _PARTS,
        TIMESTAMP,
        try_make_timestamp,
        nullable=True,
        example="2023, 2, 29, 0, 0, lit(Decimal(0))",
        spark=in_utc("try_make_timestamp"),
    ),
    function(
        "second_with_fraction",
        "Second of the minute, with microseconds.",
        (TIMESTAMP,),
        DecimalType(8, 6),
        second_with_fraction,
        example="timestamp('2024-02-29 12:00:01.5')",
        catalyst="SecondWithFraction",
        columns=_second_with_fraction_columns,
        spark=_second_with_fraction_spark,
    ),
    function(
        "timestamp_micros",
        "The time some microseconds after 1970.",
        (INT64,),
        TIMESTAMP,
        timestamp_micros,
        fallible=True,
        example="1",
        catalyst="MicrosToTimestamp",
        columns=_after_1970_columns(1),
    ),
    function(
        "unix_seconds",
        "Seconds since 1970, rounded down.",
        (TIMESTAMP,),
        INT64,
        unix_seconds,
        example="timestamp('1970-01-01 00:00:01')",
        catalyst="UnixSeconds",
        columns=_since_1970_columns(_SECOND),
    ),
)
