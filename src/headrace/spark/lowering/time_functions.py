"""Lowering of date and timestamp functions to Spark columns.

Spark reads the fields of a timestamp in the session's time zone. Here, time is UTC in every session, so
everything is computed on microseconds since 1970, and on dates, which have no time zone. What cannot be
computed so raises in a session of another zone.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from headrace.expr.functions.intervals import to_text
from headrace.expr.spark_columns import spark_type
from headrace.expr.types import (
    DATE,
    INTERVAL,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DateType,
    IntervalType,
    StrType,
    TimestampNtzType,
    TimestampType,
)
from headrace.expr.typing_rules import LiteralTerm

if TYPE_CHECKING:
    from pyspark.sql import Column

    from headrace.expr.typing_rules import CallTerm

    Lowering = Callable[[CallTerm, tuple[Column, ...]], Column]

_DAY = 86_400_000_000
_WIDTHS = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": _DAY}
# The texts that are read as moments: with a zone, which then decides, and without, in UTC. Spark would
# read times of today, too.
_BLANK = r"[\x00-\x20\x7f]*"
_DATE = rf"^{_BLANK}\+?\d{{4,6}}-\d{{1,2}}-\d{{1,2}}"
_ZONED = rf"(?s){_DATE}[ T]\d{{1,2}}:\d{{1,2}}:\d{{1,2}}(\.\d*)?{_BLANK}[^.\d\x00-\x20\x7f].*$"
_LOCAL = rf"({_DATE}([ T]\d[\d:.]*)?|^{_BLANK}\+?\d{{4,6}}(-\d{{1,2}})?){_BLANK}$"
_ALONE = rf"^{_BLANK}(T\s*\d|\d{{1,2}}:)"


def _micros(span: object) -> int:
    assert isinstance(span, timedelta)
    return span // timedelta(microseconds=1)


def interval_constant(span: object) -> Column:
    """Return an interval from its text: PySpark makes one of a `timedelta` through a float."""
    assert isinstance(span, timedelta)
    return F.expr(to_text(span, INTERVAL.first, INTERVAL.last))


def _whole(value: Column, by: int) -> Column:
    """`value // by` for a value that is non-negative or a multiple of `by`."""
    return F.call_function("div", value, F.lit(by).cast("bigint"))


def _rest(value: Column, by: int) -> Column:
    return F.pmod(value, F.lit(by).cast("bigint"))


def _window_start(moment: Column, width: int) -> Column:
    micros = F.unix_micros(moment)
    return F.timestamp_micros(micros - _rest(micros, width))


def _date_of(moment: Column) -> Column:
    micros = F.unix_micros(moment)
    return F.date_from_unix_date(_whole(micros - _rest(micros, _DAY), _DAY).cast("int"))


def _midnight(day: Column) -> Column:
    return F.timestamp_micros(F.unix_date(day).cast("bigint") * F.lit(_DAY))


def _shift(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    micros = _micros(call.options[0])
    if call.type == DATE:
        return F.date_add(arguments[0], F.lit(micros // _DAY))
    if call.type == TIMESTAMP_NTZ or isinstance(call.type, IntervalType):
        return arguments[0] + interval_constant(call.options[0])
    return F.timestamp_micros(F.unix_micros(arguments[0]) + F.lit(micros).cast("bigint"))


def _micros_since(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return F.unix_micros(arguments[0]) - F.unix_micros(arguments[1])


def _seconds_since(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return _micros_since(call, arguments).cast("double") / F.lit(1_000_000.0)


def _days_since(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return F.date_diff(arguments[0], arguments[1])


def _tumble(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return _window_start(arguments[0], _micros(call.options[0]))


def _truncate(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    (value,), unit = arguments, str(call.options[0])
    if unit in _WIDTHS:
        return _window_start(value, _WIDTHS[unit])
    if call.type == DATE:
        return F.trunc(value, unit)
    return _midnight(F.trunc(_date_of(value), unit))


_SECONDS = "decimal(20,6)"


def _micros_of(span: Column) -> Column:
    seconds = span.cast(spark_type(INTERVAL)).cast(_SECONDS)
    return (seconds * F.lit(_WIDTHS["second"])).cast("bigint")


def time_sum(call: CallTerm, arguments: tuple[Column, ...]) -> Column | None:
    """Lower a sum or a difference of times and intervals; None if it is of neither. No zone has a say."""
    (a, b), (first, second) = arguments, (argument.type for argument in call.arguments)
    if first == second == TIMESTAMP:
        return without_zone(a) - without_zone(b)
    if call.type != TIMESTAMP:
        return None
    if isinstance(first, IntervalType):
        a, b = b, a
    moved = _micros_of(b) if call.function.name.endswith("add") else -_micros_of(b)
    return F.timestamp_micros(F.unix_micros(a) + moved)


_PARTS = ("DAY", "HOUR", "MINUTE", "SECOND")


def _interval_part(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    (part,) = call.options
    assert isinstance(part, int)
    return F.extract(F.lit(_PARTS[part]), arguments[0].cast(spark_type(INTERVAL)))


def _day_field(function: Callable[[Column], Column]) -> Lowering:
    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        (value,) = arguments
        of = call.arguments[0].type
        return function(_date_of(value) if of == TIMESTAMP else value.cast("date"))

    return lowering


def _time_field(unit: int, of: int) -> Lowering:
    """Return the number of whole units of this many microseconds within a larger unit."""

    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        (value,) = arguments
        moment = moment_in_utc(value) if call.arguments[0].type == TIMESTAMP_NTZ else value
        return _whole(_rest(F.unix_micros(moment), of), unit).cast("int")

    return lowering


# -- in a session in UTC ---------------------------------------------------------------------

_UTC_NAMES = ("UTC", "Etc/UTC", "GMT", "Z", "+00:00")


def _in_utc(function: Callable[..., Column]) -> Lowering:
    """Lower to a function of Spark that looks at the session's time zone, which must be UTC."""

    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        message = f"{call.function.name} needs a session with spark.sql.session.timeZone = UTC"
        failed = F.raise_error(F.lit(message)).cast(spark_type(call.type))
        return F.when(F.current_timezone().isin(*_UTC_NAMES), function(*arguments)).otherwise(failed)

    return lowering


def _of_unit(function: Callable[..., Column]) -> Lowering:
    """Lower to a function of a constant unit."""

    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        unit = call.arguments[0]
        assert isinstance(unit, LiteralTerm)
        return _in_utc(partial(function, str(unit.value)))(call, arguments[1:])

    return lowering


def _second_with_fraction(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    micros = _rest(F.unix_micros(arguments[0]), _WIDTHS["minute"]).cast("decimal(8,0)")
    return (micros * F.lit(0.000001).cast("decimal(6,6)")).cast("decimal(8,6)")


# -- casts -------------------------------------------------------------------------------------


def _cast_to_date(value: Column, target: DataType) -> Column:
    return _date_of(value)


def _cast_to_midnight(value: Column, target: DataType) -> Column:
    return _midnight(value)


def without_zone(moment: Column) -> Column:
    """Return what a clock in UTC shows."""
    seconds = (F.unix_micros(moment).cast("decimal(20,0)") * F.lit(0.000001).cast("decimal(6,6)")).cast(
        "decimal(18,6)"
    )
    start = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz")
    return start + F.make_dt_interval(secs=seconds)


def _text_of_moment(value: Column, target: DataType) -> Column:
    return without_zone(value).cast("string")


def _ntz_of_text(text: Column, target: DataType) -> Column:
    message = F.concat(F.lit("'"), text, F.lit("' cannot be read as timestamp"))
    failed = F.when(text.isNotNull(), F.raise_error(message).cast("timestamp_ntz"))
    return F.when(text.rlike(_ZONED) | text.rlike(_LOCAL), text.cast("timestamp_ntz")).otherwise(failed)


def _tried_ntz_of_text(text: Column) -> Column:
    return F.when(text.rlike(_ZONED) | text.rlike(_LOCAL), text.try_cast("timestamp_ntz"))


def _moment_of_text(text: Column, target: DataType) -> Column:
    message = F.concat(F.lit("'"), text, F.lit("' cannot be read as timestamp"))
    failed = F.raise_error(message).cast("timestamp")
    in_utc = moment_in_utc(text.cast("timestamp_ntz"))
    zoned = F.when(text.rlike(_ZONED), text.cast("timestamp"))
    return zoned.when(text.rlike(_LOCAL), in_utc).otherwise(F.when(text.isNotNull(), failed))


def _tried_moment_of_text(text: Column) -> Column:
    in_utc = moment_in_utc(text.try_cast("timestamp_ntz"))
    message = F.concat(
        F.lit("'"), text, F.lit("' is a time of the current day, which has no counterpart here")
    )
    today = text.rlike(_ALONE) & text.try_cast("timestamp").isNotNull()
    return (
        F.when(text.rlike(_ZONED), text.try_cast("timestamp"))
        .when(text.rlike(_LOCAL), in_utc)
        .when(today, F.raise_error(message).cast("timestamp"))
    )


def moment_in_utc(wall: Column) -> Column:
    """Return the instant at which a UTC clock shows the given zoneless timestamp."""
    day = F.unix_date(wall.cast("date")).cast("bigint") * F.lit(_DAY)
    hours = F.hour(wall).cast("bigint") * F.lit(_WIDTHS["hour"])
    minutes = F.minute(wall).cast("bigint") * F.lit(_WIDTHS["minute"])
    seconds = (F.extract(F.lit("SECOND"), wall) * F.lit(_WIDTHS["second"])).cast("bigint")
    return F.timestamp_micros(day + hours + minutes + seconds)


CASTS: dict[tuple[type[DataType], type[DataType]], Callable[[Column, DataType], Column]] = {
    (TimestampType, DateType): _cast_to_date,
    (DateType, TimestampType): _cast_to_midnight,
    (TimestampType, StrType): _text_of_moment,
    (StrType, TimestampType): _moment_of_text,
    (StrType, TimestampNtzType): _ntz_of_text,
    (TimestampType, TimestampNtzType): lambda value, target: without_zone(value),
    (TimestampNtzType, TimestampType): lambda value, target: moment_in_utc(value),
}

TRIED_CASTS: dict[tuple[type[DataType], type[DataType]], Callable[[Column], Column]] = {
    (TimestampType, DateType): _date_of,
    (DateType, TimestampType): _midnight,
    (TimestampType, StrType): lambda value: _text_of_moment(value, STR),
    (StrType, TimestampType): _tried_moment_of_text,
    (StrType, TimestampNtzType): _tried_ntz_of_text,
    (TimestampType, TimestampNtzType): without_zone,
    (TimestampNtzType, TimestampType): moment_in_utc,
}
"""Casts that look at the session's time zone, null where they fail."""

TIME: dict[str, Lowering] = {
    "shift": _shift,
    "interval_part": _interval_part,
    "micros_since": _micros_since,
    "seconds_since": _seconds_since,
    "days_since": _days_since,
    "tumble": _tumble,
    "truncate": _truncate,
    "year": _day_field(F.year),
    "quarter": _day_field(F.quarter),
    "month": _day_field(F.month),
    "day": _day_field(F.dayofmonth),
    "day_of_week": _day_field(F.dayofweek),
    "weekday": _day_field(F.weekday),
    "day_of_year": _day_field(F.dayofyear),
    "hour": _time_field(3_600_000_000, _DAY),
    "minute": _time_field(60_000_000, 3_600_000_000),
    "second": _time_field(1_000_000, 60_000_000),
    "microsecond": _time_field(1, 1_000_000),
    "second_with_fraction": _second_with_fraction,
    "yearofweek": lambda call, arguments: F.extract(F.lit("YEAROFWEEK"), arguments[0]),
    "timestampdiff": _of_unit(F.timestamp_diff),
    "timestampadd": _of_unit(F.timestamp_add),
    **{
        name: _in_utc(partial(F.call_function, name))
        for name in (
            *("date_format", "from_unixtime", "to_timestamp", "try_to_timestamp", "to_date", "try_to_date"),
            *("months_between", "make_timestamp", "try_make_timestamp"),
        )
    },
    # Spark doesn't look at the pattern for dates and times; here it is an argument, null as others.
    "unix_timestamp": _in_utc(
        lambda value, pattern: F.when(pattern.isNotNull(), F.call_function("unix_timestamp", value, pattern))
    ),
}
