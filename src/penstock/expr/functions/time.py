"""Date and timestamp functions. All times are UTC."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

from penstock.expr.code_runtime import EPOCH, raise_overflow
from penstock.expr.durations import format_duration
from penstock.expr.function_bases import Emitter, StrictFunction
from penstock.expr.types import DATE, FLOAT64, INT32, INT64, TIMESTAMP, DataType
from penstock.expr.typing_rules import Arguments, CallTerm, Function, Mismatch, Signature

Python = Callable[[Emitter, CallTerm, tuple[str, ...]], str]
Rule = Callable[[Arguments, tuple[object, ...]], Signature]

_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)


def _need(what: str, arguments: Arguments, *wanted: DataType) -> None:
    for argument in arguments:
        if argument.type not in wanted:
            names = " or a ".join(str(w) for w in wanted)
            raise Mismatch(
                f"{what} needs a {names}, got {argument.type}",
                fix=".to_timestamp() and .to_date() read text",
            )


# -- shifts and differences ----------------------------------------------------------------


def _shift_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,), (span,) = arguments, options
    assert isinstance(span, timedelta)
    _need("adding a timedelta", arguments, DATE, TIMESTAMP)
    if argument.type == DATE and span % _DAY:
        raise Mismatch(
            f"a date moves by whole days, not by {format_duration(span)}", fix="cast it to a timestamp"
        )
    return Signature((argument.type,), argument.type)


def _shift(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
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
    units = UNITS if argument.type == TIMESTAMP else UNITS[4:]
    if unit not in units:
        raise Mismatch(f"no unit {unit!r} to truncate a {argument.type} to", fix=f"one of {', '.join(units)}")
    return Signature((argument.type,), argument.type)


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


NAMES: dict[str, Any] = {
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
)
