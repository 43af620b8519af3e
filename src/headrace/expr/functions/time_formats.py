"""Functions between times and texts by a pattern (see `headrace.expr.time_patterns`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.function_records import function
from headrace.expr.functions.cast_columns import in_utc, parsed_text, since_first_year
from headrace.expr.functions.instants import seconds_after_1970
from headrace.expr.functions.integer_columns import count_of
from headrace.expr.polars_columns import LoweredExpression, NotLowered, constant_value
from headrace.expr.text_casts import malformed_error
from headrace.expr.time_patterns import TimePattern, format_pattern, parse_pattern
from headrace.expr.types import DATE, INT64, RANGES, STR, TIMESTAMP
from headrace.expr.typing_rules import CallTerm, Function
from headrace.requirements import F, pl

if TYPE_CHECKING:
    from pyspark.sql import Column


_SECOND = timedelta(seconds=1)


def parsed(text: str, pattern: TimePattern) -> datetime:
    """Parse a text. Raises `EvaluationError` if it does not follow the pattern."""
    found = pattern.parse(text)
    return malformed_error(text, f"a time of the pattern {pattern.text!r}") if found is None else found


def parsed_or_none(text: str, pattern: TimePattern) -> datetime | None:
    return pattern.parse(text)


def date_or_none(text: str, pattern: TimePattern) -> date | None:
    found = pattern.parse(text)
    return None if found is None else found.date()


def unix_timestamp(value: str | date, pattern: TimePattern) -> int:
    """Return the seconds since 1970 of a time, a day's start, or a text that follows the pattern."""
    if isinstance(value, str):
        value = parsed(value, pattern)
    if not isinstance(value, datetime):
        return (value - EPOCH.date()).days * 86_400
    # Cut towards 1970, unlike unix_seconds.
    return (value - EPOCH) // _SECOND if value >= EPOCH else -((EPOCH - value) // _SECOND)


def from_unixtime(seconds: int, pattern: TimePattern) -> str:
    try:
        return pattern.format(EPOCH + timedelta(seconds=seconds))
    except OverflowError:
        raise_overflow(seconds, "timestamp")


# -- on columns -------------------------------------------------------------------------------


_FIELDS = {
    "yyyy": ("%Y", "[0-9]{4}"),
    "MM": ("%m", "(0[1-9]|1[0-2])"),
    "dd": ("%d", "(0[1-9]|[12][0-9]|3[01])"),
    "HH": ("%H", "([01][0-9]|2[0-3])"),
    "mm": ("%M", "[0-5][0-9]"),
    "ss": ("%S", "[0-5][0-9]"),
}
_TOKEN = re.compile("|".join((*_FIELDS, "'T'", "[-/:., _]")))
_DAY, _CLOCK = {"yyyy", "MM", "dd"}, {"HH", "mm"}
_SECONDS_OF_DAY = 86_400


def _tokens(call: CallTerm) -> list[str]:
    pattern = constant_value(call.arguments[1])
    found = _TOKEN.findall(pattern) if isinstance(pattern, str) else []
    fields = [token for token in found if token in _FIELDS]
    if not fields or "".join(found) != pattern or len(set(fields)) < len(fields):
        raise NotLowered(f"{call.function.name}() has a columnar form only for plain patterns as yyyy-MM-dd")
    return found


def _shown(token: str) -> str:
    return _FIELDS[token][0] if token in _FIELDS else token.strip("'")


def _format_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    form = "".join(map(_shown, _tokens(call)))
    return LoweredExpression(arguments[0].value.dt.to_string(form))


def _from_unixtime_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    moment = seconds_after_1970(call, arguments)
    return LoweredExpression(_format_columns(call, [moment]).value, None, moment.fails)


def _read_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    """Parse texts that have exactly the digits of the pattern; others are marked as failed."""
    tokens = _tokens(call)
    fields = {token for token in tokens if token in _FIELDS}
    with_clock = not fields <= _DAY
    if not fields >= _DAY or (with_clock and not fields >= _CLOCK):
        raise NotLowered(
            f"{call.function.name}() has a columnar form only for patterns of a whole day or time"
        )
    form = "".join(map(_shown, tokens))
    syntax = "".join(
        _FIELDS[token][1] if token in _FIELDS else re.escape(token.strip("'")) for token in tokens
    )

    def read(text: pl.Expr) -> pl.Expr:
        if with_clock:
            time = text.str.to_datetime(form, time_unit="us", strict=False)
        else:
            time = text.str.to_date(form, strict=False).cast(pl.Datetime("us"))
        return since_first_year(time)

    made = parsed_text(syntax, read)(arguments[0], STR, TIMESTAMP)
    return LoweredExpression(made.value.dt.date(), None, made.fails) if call.type == DATE else made


def _unix_timestamp_columns(call: CallTerm, arguments: Sequence[LoweredExpression]) -> LoweredExpression:
    (value, *_), type_ = arguments, call.arguments[0].type
    if constant_value(call.arguments[1]) is None:
        raise NotLowered("unix_timestamp() has a columnar form only with a constant pattern")
    if type_ == DATE:
        return LoweredExpression(count_of(value.value) * _SECONDS_OF_DAY, RANGES[INT64])
    time = _read_columns(call, arguments) if type_ == STR else LoweredExpression(value.value)
    micros = count_of(time.value)
    seconds = micros // 1_000_000 + ((micros < 0) & (micros % 1_000_000 != 0)).cast(pl.Int64)
    return LoweredExpression(seconds, RANGES[INT64], time.fails)


def _unix_timestamp_spark(call: CallTerm, arguments: tuple[Column, ...]) -> Column:
    # Spark doesn't look at the pattern for dates and times; here it is an argument, null as others.
    def read(value: Column, pattern: Column) -> Column:
        return F.when(pattern.isNotNull(), F.call_function("unix_timestamp", value, pattern))

    return in_utc(read)(call, arguments)


NAMES: dict[str, Any] = {
    "x_parsed_time": parsed,
}

_READ = {1: parse_pattern}

FUNCTIONS: tuple[Function, ...] = (
    function(
        "date_format",
        "The time formatted by a pattern.",
        (TIMESTAMP, STR),
        STR,
        "{1}.format({0})",
        prepared={1: format_pattern},
        example="timestamp('2024-02-29 07:05'), 'HH:mm'",
        catalyst="DateFormatClass",
        columns=_format_columns,
        spark=in_utc("date_format"),
        keeps_size=True,
    ),
    function(
        "from_unixtime",
        "Seconds since 1970, formatted by a pattern.",
        (INT64, STR),
        STR,
        from_unixtime,
        fallible=True,
        prepared={1: format_pattern},
        defaults=("yyyy-MM-dd HH:mm:ss",),
        example="0, 'yyyy-MM-dd'",
        catalyst="FromUnixTime",
        columns=_from_unixtime_columns,
        spark=in_utc("from_unixtime"),
        keeps_size=True,
    ),
    function(
        "to_timestamp",
        "The time in a text, by a pattern.",
        (STR, STR),
        TIMESTAMP,
        "x_parsed_time({0}, {1})",
        fallible=True,
        prepared=_READ,
        example="'29.02.2024 7', 'dd.MM.yyyy H'",
        columns=_read_columns,
        spark=in_utc("to_timestamp"),
    ),
    function(
        "try_to_timestamp",
        "As `to_timestamp`; null if the text doesn't fit.",
        (STR, STR),
        TIMESTAMP,
        parsed_or_none,
        nullable=True,
        prepared=_READ,
        example="'soon', 'yyyy'",
        columns=_read_columns,
        spark=in_utc("try_to_timestamp"),
    ),
    function(
        "to_date",
        "The date in a text, by a pattern.",
        (STR, STR),
        DATE,
        "x_parsed_time({0}, {1}).date()",
        fallible=True,
        prepared=_READ,
        example="'29.02.2024', 'dd.MM.yyyy'",
        columns=_read_columns,
        spark=in_utc("to_date"),
    ),
    function(
        "try_to_date",
        "As `to_date`; null if the text doesn't fit.",
        (STR, STR),
        DATE,
        date_or_none,
        nullable=True,
        prepared=_READ,
        example="'soon', 'yyyy-MM-dd'",
        columns=_read_columns,
        spark=in_utc("try_to_date"),
    ),
    function(
        "unix_timestamp",
        "Seconds since 1970 of a time, or of a text by a pattern.",
        ((STR, DATE, TIMESTAMP), STR),
        INT64,
        unix_timestamp,
        fallible=True,
        prepared=_READ,
        defaults=("yyyy-MM-dd HH:mm:ss",),
        example="'1970-01-02', 'yyyy-MM-dd'",
        columns=_unix_timestamp_columns,
        spark=_unix_timestamp_spark,
    ),
)
