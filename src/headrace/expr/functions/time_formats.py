"""Functions between times and texts by a pattern (see `headrace.expr.time_patterns`)."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Any

from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.function_bases import fixed
from headrace.expr.text_casts import malformed_error
from headrace.expr.time_patterns import TimePattern, format_pattern, parse_pattern
from headrace.expr.types import DATE, INT64, STR, TIMESTAMP
from headrace.expr.typing_rules import Function

_SECOND = timedelta(seconds=1)


def parsed(text: str, pattern: TimePattern) -> datetime:
    """Read a text. Raises `EvaluationError` if it does not follow the pattern."""
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


NAMES: dict[str, Any] = {
    "x_date_or_none": date_or_none,
    "x_from_unixtime": from_unixtime,
    "x_parsed_or_none": parsed_or_none,
    "x_parsed_time": parsed,
    "x_unix_timestamp": unix_timestamp,
}

_READ = {1: parse_pattern}

FUNCTIONS: tuple[Function, ...] = (
    fixed(
        "date_format",
        "The time formatted by a pattern.",
        (TIMESTAMP, STR),
        STR,
        "{1}.format({0})",
        prepared={1: format_pattern},
    ),
    fixed(
        "from_unixtime",
        "Seconds since 1970, formatted by a pattern.",
        (INT64, STR),
        STR,
        "x_from_unixtime({0}, {1})",
        fallible=True,
        prepared={1: format_pattern},
    ),
    fixed(
        "to_timestamp",
        "The time in a text, by a pattern.",
        (STR, STR),
        TIMESTAMP,
        "x_parsed_time({0}, {1})",
        fallible=True,
        prepared=_READ,
    ),
    fixed(
        "try_to_timestamp",
        "As `to_timestamp`; null if the text doesn't fit.",
        (STR, STR),
        TIMESTAMP,
        "x_parsed_or_none({0}, {1})",
        nullable=True,
        prepared=_READ,
    ),
    fixed(
        "to_date",
        "The date in a text, by a pattern.",
        (STR, STR),
        DATE,
        "x_parsed_time({0}, {1}).date()",
        fallible=True,
        prepared=_READ,
    ),
    fixed(
        "try_to_date",
        "As `to_date`; null if the text doesn't fit.",
        (STR, STR),
        DATE,
        "x_date_or_none({0}, {1})",
        nullable=True,
        prepared=_READ,
    ),
    fixed(
        "unix_timestamp",
        "Seconds since 1970 of a time, or of a text by a pattern.",
        ((STR, DATE, TIMESTAMP), STR),
        INT64,
        "x_unix_timestamp({0}, {1})",
        fallible=True,
        prepared=_READ,
    ),
)
