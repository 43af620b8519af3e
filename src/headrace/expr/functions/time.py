"""Date and timestamp functions. All times are UTC."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.durations import format_duration
from headrace.expr.function_bases import Emitter, StrictFunction, fixed
from headrace.expr.types import (
    DATE,
    FLOAT64,
    INT32,
    INT64,
    INTERVAL,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    IntervalType,
)
from headrace.expr.typing_rules import Arguments, CallTerm, Function, Mismatch, Signature
from headrace.expr.widening import wider_type

Python = Callable[[Emitter, CallTerm, tuple[str, ...]], str]
Rule = Callable[[Arguments, tuple[object, ...]], Signature]

_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)


def _need(what: str, arguments: Arguments, *wanted: DataType) -> None:
    for argument in arguments:
        if argument.type not in wanted and not (argument.type == TIMESTAMP_NTZ and TIMESTAMP in wanted):
            names = " or a ".join(str(w) for w in wanted)
            is_span = isinstance(argument.type, IntervalType)
            raise Mismatch(
                f"{what} needs a {names}, got {argument.type}",
                fix="" if is_span else ".to_timestamp() and .to_date() read text",
            )


# -- shifts and differences ----------------------------------------------------------------


def _shift_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,), (span,) = arguments, options
    assert isinstance(span, timedelta)
    if isinstance(argument.type, IntervalType):
        return Signature((argument.type,), wider_type(argument.type, INTERVAL))
    _need("adding a timedelta", arguments, DATE, TIMESTAMP)
    if argument.type == DATE and span % _DAY:
        raise Mismatch(
            f"a date moves by whole days, not by {format_duration(span)}", fix="cast it to a timestamp"
        )
    return Signature((argument.type,), argument.type)


def _shift(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    if isinstance(call.type, IntervalType):
        return f"x_interval({operands[0]} + {emitter.constant(call.options[0])})"
    return f"x_shift({operands[0]}, {emitter.constant(call.options[0])})"


def shift(value: Any, span: timedelta) -> Any:
    """Add `span` to a timestamp or date. Raises outside the years 1 to 9999."""
    try:
        return value + span
    except OverflowError:
        raise_overflow(f"{value} + {format_duration(span)}", "date" if type(value) is date else "timestamp")


def _since_rule(what: str, wanted: DataType, result: DataType) -> Rule:
    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        _need(what, arguments, *((wanted,) if wanted == DATE else (TIMESTAMP, DATE)))
        return Signature((wanted, wanted), result)

    return rule


def _micros_since(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    return f"(({operands[0]} - {operands[1]}) // {emitter.constant(_MICROSECOND)})"


def _seconds_since(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    return f"(float(({operands[0]} - {operands[1]}) // {emitter.constant(_MICROSECOND)}) / 1000000.0)"


def _days_since(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    return f"({operands[0]} - {operands[1]}).days"


# -- windows -------------------------------------------------------------------------------

_WIDTHS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": _DAY,
}
UNITS = (*_WIDTHS, "week", "month", "quarter", "year")


def _tumble_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (width,) = options
    assert isinstance(width, timedelta)
    _need("tumble", arguments, TIMESTAMP)
    if width <= timedelta():
        raise Mismatch(f"a window is longer than nothing, not {format_duration(width)}")
    return Signature((TIMESTAMP,), TIMESTAMP)


def _tumble(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    (width,) = call.options
    assert isinstance(width, timedelta)
    return _window_start(emitter, operands[0], width)


def _window_start(emitter: Emitter, source: str, width: timedelta) -> str:
    if _DAY % width:
        return f"x_tumble({source}, {emitter.constant(width)})"
    # Windows that divide a day never start before the year 1.
    first, again = emitter.name_value(source)
    return f"({first} - ({again} - x_epoch) % {emitter.constant(width)})"


def tumble(value: datetime, width: timedelta) -> datetime:
    """Return the start of the window. Raises before the year 1."""
    try:
        return value - (value - EPOCH) % width
    except OverflowError:
        raise_overflow(f"the start of the {format_duration(width)} window of {value}", "timestamp")


def _truncate_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,), (unit,) = arguments, options
    _need("truncate", arguments, TIMESTAMP, DATE)
    units = UNITS[4:] if argument.type == DATE else UNITS
    if unit not in units:
        raise Mismatch(f"no unit {unit!r} to truncate a {argument.type} to", fix=f"one of {', '.join(units)}")
    # As on Spark, a time without a zone is truncated as one in UTC.
    result = DATE if argument.type == DATE else TIMESTAMP
    return Signature((result,), result)


def _truncate(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    unit = str(call.options[0])
    if unit in _WIDTHS:
        return _window_start(emitter, operands[0], _WIDTHS[unit])
    return f"x_truncate_{unit}({operands[0]})"


def _midnight(value: Any) -> Any:
    return value.replace(hour=0, minute=0, second=0, microsecond=0) if isinstance(value, datetime) else value


def truncate_week(value: Any) -> Any:
    """Return the Monday of the week."""
    return shift(_midnight(value), timedelta(days=-value.weekday()))


def truncate_month(value: Any) -> Any:
    return _midnight(value).replace(day=1)


def truncate_quarter(value: Any) -> Any:
    return _midnight(value).replace(month=(value.month - 1) // 3 * 3 + 1, day=1)


def truncate_year(value: Any) -> Any:
    return _midnight(value).replace(month=1, day=1)


# -- fields --------------------------------------------------------------------------------


def _field_rule(what: str, *wanted: DataType) -> Rule:
    def rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
        _need(what, arguments, *wanted)
        return Signature((arguments[0].type,), INT32)

    return rule


def _template(source: str) -> Python:
    def python(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
        return source.format(operands[0])

    return python


def _day_field(name: str, source: str) -> StrictFunction:
    return StrictFunction(name, _field_rule(name, DATE, TIMESTAMP), _template(source))


def _time_field(name: str, source: str) -> StrictFunction:
    return StrictFunction(name, _field_rule(name, TIMESTAMP), _template(source))


# -- months and days -------------------------------------------------------------------------


def add_days(day: date, count: int) -> date:
    return shift(day, timedelta(days=count)) if abs(count) < 10_000_000 else _out_of_range(day, count, "days")


def add_months(day: date, count: int) -> date:
    """Return the day some months later, the last of the month where that has not as many days."""
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
    """Return a day of the calendar. Raises `EvaluationError` if there is none."""
    try:
        return date(year, month, day)
    except (ValueError, OverflowError) as error:
        raise EvaluationError(f"there is no day {year}-{month}-{day}") from error


def date_from_unix(days: int) -> date:
    return add_days(EPOCH.date(), days)


def timestamp_micros(micros: int) -> datetime:
    """Return a moment. Raises outside the years 1 to 9999."""
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise_overflow(micros, "timestamp")


def unix_seconds(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(seconds=1)


NAMES: dict[str, Any] = {
    "x_add_days": add_days,
    "x_add_months": add_months,
    "x_date_from_unix": date_from_unix,
    "x_last_day": last_day,
    "x_make_date": make_date,
    "x_timestamp_micros": timestamp_micros,
    "x_unix_seconds": unix_seconds,
    "x_shift": shift,
    "x_tumble": tumble,
    "x_truncate_week": truncate_week,
    "x_truncate_month": truncate_month,
    "x_truncate_quarter": truncate_quarter,
    "x_truncate_year": truncate_year,
}

FUNCTIONS: tuple[Function, ...] = (
    StrictFunction("shift", _shift_rule, _shift, fallible=True),
    StrictFunction("micros_since", _since_rule("micros_since", TIMESTAMP, INT64), _micros_since),
    StrictFunction("seconds_since", _since_rule("seconds_since", TIMESTAMP, FLOAT64), _seconds_since),
    StrictFunction("days_since", _since_rule("days_since", DATE, INT32), _days_since),
    StrictFunction("tumble", _tumble_rule, _tumble, fallible=True),
    StrictFunction("truncate", _truncate_rule, _truncate, fallible=True),
    _day_field("year", "{0}.year"),
    _day_field("quarter", "(({0}.month + 2) // 3)"),
    _day_field("month", "{0}.month"),
    _day_field("day", "{0}.day"),
    _day_field("day_of_week", "({0}.isoweekday() % 7 + 1)"),
    _day_field("weekday", "{0}.weekday()"),
    _day_field("day_of_year", "{0}.timetuple().tm_yday"),
    _time_field("hour", "{0}.hour"),
    _time_field("minute", "{0}.minute"),
    _time_field("second", "{0}.second"),
    _time_field("microsecond", "{0}.microsecond"),
    fixed(
        "date_add", "The date some days later.", (DATE, INT32), DATE, "x_add_days({0}, {1})", fallible=True
    ),
    fixed(
        "date_sub", "The date some days earlier.", (DATE, INT32), DATE, "x_add_days({0}, -{1})", fallible=True
    ),
    fixed(
        "add_months",
        "The date some months later, at most the last of that month.",
        (DATE, INT32),
        DATE,
        "x_add_months({0}, {1})",
        fallible=True,
    ),
    fixed("last_day", "Last day of the month.", (DATE,), DATE, "x_last_day({0})"),
    fixed(
        "make_date",
        "The date of a year, month and day.",
        (INT32, INT32, INT32),
        DATE,
        "x_make_date({0}, {1}, {2})",
        fallible=True,
    ),
    fixed("unix_date", "Days since 1970-01-01.", (DATE,), INT32, "({0}.toordinal() - 719163)"),
    fixed(
        "date_from_unix_date",
        "The date some days after 1970-01-01.",
        (INT32,),
        DATE,
        "x_date_from_unix({0})",
        fallible=True,
    ),
    fixed(
        "timestamp_micros",
        "The time some microseconds after 1970.",
        (INT64,),
        TIMESTAMP,
        "x_timestamp_micros({0})",
        fallible=True,
    ),
    fixed("unix_seconds", "Seconds since 1970, rounded down.", (TIMESTAMP,), INT64, "x_unix_seconds({0})"),
)
