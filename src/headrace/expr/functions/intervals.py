"""Intervals of days and time: arithmetic, parts and text, by the rules of Spark's ANSI mode."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import date, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import EXACT, raise_overflow, raise_zero_division
from headrace.expr.function_records import function
from headrace.expr.functions import integer_columns
from headrace.expr.functions.integer_columns import (
    MICROSECOND,
    count_of,
)
from headrace.expr.polars_columns import (
    LoweredExpression,
    dtype_of,
)
from headrace.expr.spark_columns import spark_type
from headrace.expr.text_casts import BLANK, malformed_error
from headrace.expr.time_texts import format_duration
from headrace.expr.types import (
    DATE,
    INT8,
    INT32,
    INTERVAL,
    INTERVAL_UNITS,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    IntervalType,
)
from headrace.expr.typing_rules import (
    NULL,
    Arguments,
    CallTerm,
    Emitter,
    Function,
    Mismatch,
    Signature,
    is_number,
    wider_type,
)
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column


_LONGEST, _SHORTEST = timedelta(microseconds=2**63 - 1), timedelta(microseconds=-(2**63))
_TIMES: tuple[DataType, ...] = (DATE, TIMESTAMP, TIMESTAMP_NTZ)
_DAYS = IntervalType(0, 0)

# -- arithmetic ----------------------------------------------------------------------------


def interval_signature(what: str, arguments: Arguments) -> Signature | None:
    """Return the types of arithmetic on intervals and times, or None for other arithmetic."""
    left, right = (argument.type for argument in arguments)
    spans = [isinstance(type, IntervalType) for type in (left, right)]
    if what in "+-" and (all(spans) or (any(spans) and NULL in (left, right))):
        common = wider_type(left, right)
        return Signature((common, common), common)
    if what == "-" and left in _TIMES and right in _TIMES:
        common = wider_type(left, right)
        return Signature((common, common), _DAYS if common == DATE else INTERVAL)
    if what in "+-" and left in _TIMES and spans[1]:
        moved = _moved(left, right)
        return Signature((moved, right), moved)
    if what == "+" and spans[0] and right in _TIMES:
        moved = _moved(right, left)
        return Signature((left, moved), moved)
    if what in "*/" and spans[0] and is_number(right):
        return Signature((left, right), INTERVAL)
    if what == "*" and spans[1] and is_number(left):
        return Signature((left, right), INTERVAL)
    return None


def _moved(time: DataType, by: DataType) -> DataType:
    return TIMESTAMP if time == DATE and by != _DAYS else time


def interval_source(symbol: str, call: CallTerm, operands: tuple[str, ...]) -> str | None:
    """Return the source of arithmetic on intervals and times, or None for other arithmetic."""
    a, b = operands
    first, second = (argument.type for argument in call.arguments)
    if isinstance(call.type, IntervalType):
        if symbol in "+-":
            return f"x_interval({a} {symbol} {b})"
        if isinstance(first, IntervalType):
            return f"{'x_times' if symbol == '*' else 'x_over'}({a}, {b})"
        return f"x_times({b}, {a})"
    if isinstance(first, IntervalType):
        return f"x_shift({b}, {_step(a, call.type)})"
    if isinstance(second, IntervalType):
        return f"x_shift({a}, {'-' * (symbol == '-')}{_step(b, call.type)})"
    return None


def _step(span: str, moved: DataType) -> str:
    # An interval of days may have a fraction of one, which Python would round down.
    return f"x_cut_interval({span}, 0)" if moved == DATE else span


def within(span: timedelta) -> timedelta:
    """Return an interval unchanged. Raises beyond int64 microseconds."""
    return span if _SHORTEST <= span <= _LONGEST else raise_overflow(span, "interval")


def micros_of(span: timedelta) -> int:
    return span // MICROSECOND


def of_micros(micros: int) -> timedelta:
    """Return the interval of a number of microseconds. Raises beyond int64."""
    if not -(2**63) <= micros < 2**63:
        raise_overflow(micros, "interval")
    return timedelta(microseconds=micros)


def half_up(exact: Fraction) -> int:
    """Round to a whole number, halves away from zero."""
    whole = math.floor(abs(exact) + Fraction(1, 2))
    return whole if exact >= 0 else -whole


def times(span: timedelta, number: Any) -> timedelta:
    micros = span // MICROSECOND
    return of_micros(_of_float(micros * number) if isinstance(number, float) else _whole(micros, number))


def _whole(micros: int, number: int | Decimal) -> int:
    return micros * number if isinstance(number, int) else half_up(micros * Fraction(number))


def over(span: timedelta, number: Any) -> timedelta:
    if number == 0:
        raise_zero_division()
    micros = span // MICROSECOND
    if isinstance(number, float):
        return of_micros(_of_float(micros / number))
    return of_micros(half_up(micros / Fraction(number)))


def _of_float(micros: float) -> int:
    return half_up(Fraction(micros)) if math.isfinite(micros) else raise_overflow(micros, "interval")


def mean(micros: int, count: int) -> timedelta:
    """Return the mean of `count` intervals with the sum `micros`, rounded half away from zero."""
    return of_micros(half_up(Fraction(micros, count)))


# -- parts and casts -----------------------------------------------------------------------

_NAMES = ("DAY", "HOUR", "MINUTE", "SECOND")
_PARTS: tuple[DataType, ...] = (INT32, INT8, INT8, DecimalType(8, 6))


def _part_rule(arguments: Arguments, options: tuple[object, ...]) -> Signature:
    (argument,), (part,) = arguments, options
    if not isinstance(argument.type, IntervalType):
        raise Mismatch(f"interval_part needs an interval, got {argument.type}")
    if not isinstance(part, int) or not 0 <= part <= 3:
        raise Mismatch(f"an interval has no part {part!r}", fix="0 to 3: days, hours, minutes, seconds")
    return Signature((argument.type,), _PARTS[part])


def _part(emitter: Emitter, call: CallTerm, operands: tuple[str, ...]) -> str:
    return f"x_interval_part({operands[0]}, {call.options[0]})"


def part_of(span: timedelta, part: int) -> int | Decimal:
    """Return the days, or the remaining hours, minutes or seconds, with the sign of the interval."""
    micros = span // MICROSECOND
    rest = abs(micros) % INTERVAL_UNITS[part - 1] if part else abs(micros)
    if part == 3:
        return Decimal(rest if micros >= 0 else -rest).scaleb(-6, EXACT)
    return rest // INTERVAL_UNITS[part] if micros >= 0 else -(rest // INTERVAL_UNITS[part])


def cut(span: timedelta, last: int) -> timedelta:
    """Truncate towards zero to whole units."""
    if last == 3:
        return span
    unit = timedelta(microseconds=INTERVAL_UNITS[last])
    return span // unit * unit if span >= timedelta() else -(-span // unit * unit)


def units_of(span: timedelta, last: int) -> Decimal:
    """Return an interval as a number of units: whole ones, or seconds with their fraction."""
    micros = span // MICROSECOND
    return (
        Decimal(micros).scaleb(-6, EXACT)
        if last == 3
        else Decimal(_towards_zero(micros, INTERVAL_UNITS[last]))
    )


def whole_units(span: timedelta, last: int) -> int:
    return _towards_zero(span // MICROSECOND, INTERVAL_UNITS[last])


def _towards_zero(micros: int, unit: int) -> int:
    return micros // unit if micros >= 0 else -(-micros // unit)


def of_units(number: int | Decimal, last: int) -> timedelta:
    """Return the interval of a number of units. Fractions are kept to the microsecond, also of days."""
    return of_micros(half_up(Fraction(number) * INTERVAL_UNITS[last]))


def of_parts(days: int, hours: int, minutes: int, seconds: Decimal) -> timedelta:
    return of_micros(
        days * INTERVAL_UNITS[0]
        + hours * INTERVAL_UNITS[1]
        + minutes * INTERVAL_UNITS[2]
        + int(seconds.scaleb(6, EXACT))
    )


def to_text(span: timedelta, first: int, last: int) -> str:
    """Write an interval as an SQL literal."""
    micros = span // MICROSECOND
    rest, shown = abs(micros), ""
    for at in range(first, last + 1):
        count, rest = divmod(rest, INTERVAL_UNITS[at])
        digits = str(count) if at == 0 else f"{count:02}"
        shown += ("", " ", ":", ":")[at] * (at > first) + digits
    if last == 3 and rest:
        shown += f".{rest:06}".rstrip("0")
    sign = "-" if micros < 0 else ""
    return f"INTERVAL '{sign}{shown}' {_fields(first, last)}"


def writer_of(type: IntervalType) -> Callable[[timedelta], str]:
    """Return the function that writes intervals of a type as SQL literals."""
    return partial(to_text, first=type.first, last=type.last)


def _fields(first: int, last: int) -> str:
    return _NAMES[first] if first == last else f"{_NAMES[first]} TO {_NAMES[last]}"


_LEADING = (r"(\d{1,9})", r"(\d{1,10})", r"(\d{1,12})", r"(\d{1,13})")
_GREATEST = (0, 23, 59, 59)


@lru_cache(16)
def _form(first: int, last: int) -> re.Pattern[str]:
    parts = _LEADING[first]
    for at in range(first + 1, last + 1):
        parts += ("", " ", ":", ":")[at] + r"(\d{1,2})"
    if last == 3:
        parts += r"(?:\.(\d{1,9}))?"
    name = _fields(first, last).replace(" ", r"\s+")
    return re.compile(
        rf"(?:INTERVAL\s+([+-]?)'([+-]?){parts}'\s+{name}|([+-]?){parts})", re.ASCII | re.IGNORECASE
    )


def of_text(text: str, first: int, last: int) -> timedelta:
    """Parse an interval: an SQL literal, or the text between its quotes. Raises for other texts."""
    found = _form(first, last).fullmatch(text.strip(BLANK))
    if found is None:
        malformed_error(text, str(IntervalType(first, last)))
    count = last - first + 1 + (last == 3)
    groups = found.groups()
    if groups[2] is not None:
        signs, numbers = groups[:2], groups[2 : 2 + count]
    else:
        signs, numbers = groups[2 + count : 3 + count], groups[3 + count :]
    micros = 0
    for at, number in zip(range(first, last + 1), numbers):
        if at > first and int(number) > _GREATEST[at]:
            malformed_error(text, str(IntervalType(first, last)))
        micros += int(number) * INTERVAL_UNITS[at]
    if last == 3 and numbers[-1]:
        micros += int(numbers[-1].ljust(6, "0")[:6])
    return of_micros(-micros if signs.count("-") == 1 else micros)


def _is_part(option: object) -> bool:
    return type(option) is int and 0 <= option <= 3


def shift(value: Any, span: timedelta) -> Any:
    """Add `span` to a timestamp or date. Raises outside the years 1 to 9999."""
    try:
        return value + span
    except OverflowError:
        raise_overflow(f"{value} + {format_duration(span)}", "date" if type(value) is date else "timestamp")


# -- on columns -------------------------------------------------------------------------------


def _interval_part_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    (part,) = call.options
    assert isinstance(part, int)
    micros = count_of(arguments[0].value).cast(pl.Int128)
    rest = micros.abs() % INTERVAL_UNITS[part - 1] if part else micros.abs()
    size = rest if part == 3 else rest // INTERVAL_UNITS[part]
    value = pl.when(micros < 0).then(0 - size).otherwise(size)
    if part == 3:
        most = INTERVAL_UNITS[2] - 1
        return integer_columns.fitting(LoweredExpression(value, (-most, most)), 6, call.type)
    most = 2**63 // INTERVAL_UNITS[0] if part == 0 else 59
    return LoweredExpression(value.cast(dtype_of(call.type)), (-most, most))


# -- on Spark ---------------------------------------------------------------------------------


def interval_constant(span: object) -> Column:
    """Return an interval literal from text, because PySpark converts a `timedelta` through a float."""
    assert isinstance(span, timedelta)
    return F.expr(to_text(span, INTERVAL.first, INTERVAL.last))


def _interval_part_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    (part,) = call.options
    assert isinstance(part, int)
    return F.extract(F.lit(_NAMES[part]), arguments[0].cast(spark_type(INTERVAL)))


NAMES: dict[str, Any] = {
    "x_cut_interval": cut,
    "x_interval": within,
    "x_interval_of_str": of_text,
    "x_interval_mean": mean,
    "x_interval_of": of_micros,
    "x_interval_of_units": of_units,
    "x_interval_part": part_of,
    "x_interval_units": units_of,
    "x_micros": micros_of,
    "x_over": over,
    "x_shift": shift,
    "x_str_of_interval": to_text,
    "x_times": times,
    "x_whole_units": whole_units,
}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "interval_part",
        types=_part_rule,
        code=_part,
        arity=(1, 1),
        options=(_is_part,),
        columns=_interval_part_columns,
        spark=_interval_part_spark,
    ),
    function(
        "make_dt_interval",
        "Interval of days, hours, minutes and seconds.",
        (INT32, INT32, INT32, DecimalType(18, 6)),
        INTERVAL,
        of_parts,
        fallible=True,
        defaults=(0, 0, 0, Decimal(0)),
        example="1, 2, 30, Decimal('4.5')",
        catalyst="MakeDTInterval",
    ),
)
