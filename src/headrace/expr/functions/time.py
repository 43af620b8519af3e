"""Date and timestamp functions. All times are UTC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.function_records import function, is_span, is_text
from headrace.expr.functions.cast_columns import (
    MICROSECONDS,
    moment_in_utc,
    rest_of,
    utc_date,
    utc_midnight,
    whole_quotient,
)
from headrace.expr.functions.integer_columns import (
    FIRST_MICROSECOND,
    LAST_MICROSECOND,
    MICROSECOND,
    count_of,
    moment,
    sum_of_counts,
)
from headrace.expr.functions.intervals import interval_constant, shift
from headrace.expr.polars_columns import (
    LoweredExpression,
    Lowering,
    NotLowered,
    dtype_of,
    quotient,
)
from headrace.expr.time_texts import format_duration
from headrace.expr.types import (
    DATE,
    FLOAT64,
    INT32,
    INT64,
    INTERVAL,
    RANGES,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    IntervalType,
)
from headrace.expr.typing_rules import (
    Arguments,
    CallTerm,
    Emitter,
    Function,
    Mismatch,
    Signature,
    SparkForm,
    wider_type,
)
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column


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


# -- on columns -------------------------------------------------------------------------------


_WIDTHS_OF_COLUMNS = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}


def _shift_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    (span,) = call.options
    assert isinstance(span, timedelta)
    if isinstance(call.type, IntervalType):
        return sum_of_counts(count_of(arguments[0].value), pl.lit(span // MICROSECOND, dtype=pl.Int64()))
    step = span.days if call.type == DATE else span // MICROSECOND
    if abs(step) > LAST_MICROSECOND - FIRST_MICROSECOND:
        raise NotLowered("a shift by more than there are years has no columnar form")
    return moment(count_of(arguments[0].value) + step, call.type)


# -- times ---------------------------------------------------------------------------------


def _micros_since_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = (count_of(a.value) for a in arguments)
    return LoweredExpression(one - other, RANGES[INT64])


def _seconds_since_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = (count_of(a.value) for a in arguments)
    return LoweredExpression(quotient((one - other).cast(pl.Float64), 1000000.0))


def _days_since_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    one, other = (count_of(a.value) for a in arguments)
    return LoweredExpression((one - other).cast(pl.Int32), RANGES[INT32])


def _window_start_columns(value: pl.Expr, width: timedelta) -> LoweredExpression:
    count = count_of(value)
    return moment(count - count % (width // MICROSECOND), TIMESTAMP)


def _tumble_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    (width,) = call.options
    assert isinstance(width, timedelta)
    if width > timedelta(days=10_000):
        raise NotLowered("a window of that length has no columnar form")
    return _window_start_columns(arguments[0].value, width)


def _truncate_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    unit, value = str(call.options[0]), arguments[0].value
    if unit in _WIDTHS_OF_COLUMNS:
        return _window_start_columns(value, _WIDTHS_OF_COLUMNS[unit])
    if unit == "week":
        day = value.dt.date()
        monday = moment(count_of(day) - (day.dt.weekday().cast(pl.Int64) - 1), DATE)
        return LoweredExpression(monday.value.cast(dtype_of(call.type)), None, monday.fails)
    month = {"year": pl.lit(1), "quarter": (value.dt.month() - 1) // 3 * 3 + 1, "month": value.dt.month()}[
        unit
    ]
    return LoweredExpression(pl.date(value.dt.year(), month, 1).cast(dtype_of(call.type)))


def _field_columns(read: Callable[[pl.Expr], pl.Expr], greatest: int = 9999) -> Lowering:
    def lowering(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
        return LoweredExpression(read(arguments[0].value).cast(pl.Int32), (0, greatest))

    return lowering


# -- on Spark ---------------------------------------------------------------------------------


def _micros_spark(span: object) -> int:
    assert isinstance(span, timedelta)
    return span // timedelta(microseconds=1)


def _window_start_spark(moment: Column, width: int) -> Column:
    micros = F.unix_micros(moment)
    return F.timestamp_micros(micros - rest_of(micros, width))


def _shift_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    micros = _micros_spark(call.options[0])
    if call.type == DATE:
        return F.date_add(arguments[0], F.lit(micros // MICROSECONDS["day"]))
    if call.type == TIMESTAMP_NTZ or isinstance(call.type, IntervalType):
        return arguments[0] + interval_constant(call.options[0])
    return F.timestamp_micros(F.unix_micros(arguments[0]) + F.lit(micros).cast("bigint"))


def _micros_since_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return F.unix_micros(arguments[0]) - F.unix_micros(arguments[1])


def _seconds_since_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return _micros_since_spark(call, arguments).cast("double") / F.lit(1_000_000.0)


def _tumble_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    return _window_start_spark(arguments[0], _micros_spark(call.options[0]))


def _truncate_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    (value,), unit = arguments, str(call.options[0])
    if unit in MICROSECONDS:
        return _window_start_spark(value, MICROSECONDS[unit])
    if call.type == DATE:
        return F.trunc(value, unit)
    return utc_midnight(F.trunc(utc_date(value), unit))


def _day_field_spark(name: str) -> SparkForm:
    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        (value,) = arguments
        of_moment = call.arguments[0].type == TIMESTAMP
        return F.call_function(name, utc_date(value) if of_moment else value.cast("date"))

    return lowering


def _time_field_spark(unit: str, within: str) -> SparkForm:
    """Extract a time field on Spark: whole units within a larger unit."""

    def lowering(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
        (value,) = arguments
        moment = moment_in_utc(value) if call.arguments[0].type == TIMESTAMP_NTZ else value
        rest = rest_of(F.unix_micros(moment), MICROSECONDS[within])
        return whole_quotient(rest, MICROSECONDS[unit]).cast("int")

    return lowering


def _day_field(
    name: str, source: str, catalyst: str, columns: Callable[[pl.Expr], pl.Expr], spark: str
) -> Function:
    return function(
        name,
        types=_field_rule(name, DATE, TIMESTAMP),
        rows=source,
        arity=(1, 1),
        catalyst=catalyst,
        columns=_field_columns(columns),
        spark=_day_field_spark(spark),
    )


def _time_field(name: str, catalyst: str | tuple[str, ...], columns: Lowering, spark: SparkForm) -> Function:
    return function(
        name,
        types=_field_rule(name, TIMESTAMP),
        rows=f"{{0}}.{name}",
        arity=(1, 1),
        catalyst=catalyst,
        columns=columns,
        spark=spark,
    )


NAMES: dict[str, Any] = {
    "x_tumble": tumble,
    "x_truncate_week": truncate_week,
    "x_truncate_month": truncate_month,
    "x_truncate_quarter": truncate_quarter,
    "x_truncate_year": truncate_year,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "shift",
        types=_shift_rule,
        code=_shift,
        fallible=True,
        arity=(1, 1),
        options=(is_span,),
        columns=_shift_columns,
        spark=_shift_spark,
    ),
    function(
        "micros_since",
        types=_since_rule("micros_since", TIMESTAMP, INT64),
        code=_micros_since,
        arity=(2, 2),
        columns=_micros_since_columns,
        spark=_micros_since_spark,
    ),
    function(
        "seconds_since",
        types=_since_rule("seconds_since", TIMESTAMP, FLOAT64),
        code=_seconds_since,
        arity=(2, 2),
        columns=_seconds_since_columns,
        spark=_seconds_since_spark,
    ),
    function(
        "days_since",
        types=_since_rule("days_since", DATE, INT32),
        code=_days_since,
        arity=(2, 2),
        catalyst="DateDiff",
        columns=_days_since_columns,
        spark="date_diff",
    ),
    function(
        "tumble",
        types=_tumble_rule,
        code=_tumble,
        fallible=True,
        arity=(1, 1),
        options=(is_span,),
        columns=_tumble_columns,
        spark=_tumble_spark,
    ),
    function(
        "truncate",
        types=_truncate_rule,
        code=_truncate,
        fallible=True,
        arity=(1, 1),
        options=(is_text,),
        columns=_truncate_columns,
        spark=_truncate_spark,
    ),
    _day_field("year", "{0}.year", "Year", lambda value: value.dt.year(), "year"),
    _day_field("quarter", "(({0}.month + 2) // 3)", "Quarter", lambda value: value.dt.quarter(), "quarter"),
    _day_field("month", "{0}.month", "Month", lambda value: value.dt.month(), "month"),
    _day_field("day", "{0}.day", "DayOfMonth", lambda value: value.dt.day(), "dayofmonth"),
    _day_field(
        "day_of_week",
        "({0}.isoweekday() % 7 + 1)",
        "DayOfWeek",
        lambda value: value.dt.weekday() % 7 + 1,
        "dayofweek",
    ),
    _day_field("weekday", "{0}.weekday()", "WeekDay", lambda value: value.dt.weekday() - 1, "weekday"),
    _day_field(
        "day_of_year",
        "{0}.timetuple().tm_yday",
        "DayOfYear",
        lambda value: value.dt.ordinal_day(),
        "dayofyear",
    ),
    _time_field(
        "hour", "Hour", _field_columns(lambda value: value.dt.hour()), _time_field_spark("hour", "day")
    ),
    _time_field(
        "minute",
        "Minute",
        _field_columns(lambda value: value.dt.minute()),
        _time_field_spark("minute", "hour"),
    ),
    _time_field(
        "second",
        "Second",
        _field_columns(lambda value: value.dt.second()),
        _time_field_spark("second", "minute"),
    ),
    _time_field(
        "microsecond",
        (),
        _field_columns(lambda value: value.dt.microsecond(), 999_999),
        _time_field_spark("microsecond", "second"),
    ),
)
