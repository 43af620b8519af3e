"""Durations written as text: "10s", "5 min", "1h 30m"."""

from __future__ import annotations

import re
from datetime import timedelta

from headrace.errors import SourceLocation, WrongType

UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
"""Units of time by their short names."""
_NAMES = {
    name: unit
    for unit, names in {
        "us": "us micro micros microsecond microseconds",
        "ms": "ms milli millis millisecond milliseconds",
        "s": "s sec secs second seconds",
        "m": "m min mins minute minutes",
        "h": "h hour hours",
        "d": "d day days",
        "w": "w week weeks",
    }.items()
    for name in names.split()
}
_PART = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")


def duration(value: timedelta | str) -> timedelta:
    """Parse a duration from text, or return a `timedelta` unchanged. Raises `WrongType`."""
    if isinstance(value, timedelta):
        return value
    total, at = timedelta(), 0
    while isinstance(value, str) and at < len(value):  # pyright: ignore[reportUnnecessaryIsInstance]
        part = _PART.match(value, at)
        if part is None or part[2] not in _NAMES:
            break
        try:
            total += int(part[1]) * UNITS[_NAMES[part[2]]]
        except (OverflowError, ValueError):  # ValueError: more digits than Python reads
            raise too_long_error("a span of time", f"'{value:.60}'", SourceLocation.of_caller()) from None
        at = part.end()
    else:
        if at:
            return total
    raise WrongType(
        f"{value!r} is not a span of time",
        where=[SourceLocation.of_caller()],
        fix='write a timedelta, or text such as "10s", "5 min", "1h 30m", "7 days"',
    )


def too_long_error(what: str, shown: str, location: SourceLocation) -> WrongType:
    """Build the error for a duration beyond the range of `timedelta`."""
    return WrongType(
        f"{what} is too long: {shown}",
        where=[location],
        why=f"The longest is {timedelta.max.days:,} days.",
        fix='write a shorter one, such as "10s", "5 min", "1h 30m", "7 days"',
    )


def format_duration(span: timedelta) -> str:
    """Format a duration as text that `duration` reads: "10s", "1h 30m", "-5s"."""
    if span < timedelta():
        return f"-{format_duration(-span)}"
    parts: list[str] = []
    for unit in ("d", "h", "m", "s", "ms", "us"):
        count, span = divmod(span, UNITS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return " ".join(parts) or "0s"
