"""Durations and time zones, written as text.

A duration is written as "10s", "5 min", "1h 30m". A time zone has the names that Spark reads: offsets,
regions, and abbreviations of old versions of Java.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from headrace.errors import EvaluationError, SourceLocation, WrongType
from headrace.expr.code_runtime import raise_overflow

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


_SHORT = {
    "ACT": "Australia/Darwin",
    "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo",
    "AST": "America/Anchorage",
    "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare",
    "CNT": "America/St_Johns",
    "CST": "America/Chicago",
    "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa",
    "ECT": "Europe/Paris",
    "IET": "America/Indiana/Indianapolis",
    "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo",
    "MIT": "Pacific/Apia",
    "NET": "Asia/Yerevan",
    "NST": "Pacific/Auckland",
    "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix",
    "PRT": "America/Puerto_Rico",
    "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
    "EST": "-05:00",
    "MST": "-07:00",
    "HST": "-10:00",
}
_SHORT_HOUR, _SHORT_MINUTE = re.compile(r"([+-])(\d):", re.ASCII), re.compile(r"([+-]\d\d):(\d)$", re.ASCII)
_OFFSET = re.compile(
    r"(?:UTC|GMT|UT)?([+-])(?:(\d)|(\d\d)(?::?(\d\d)|:(\d\d):(\d\d)|(\d\d)(\d\d))?)", re.ASCII
)
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9~/._+-]+", re.ASCII)
_NOT_IN_JAVA = frozenset({"Factory", "ROC", "localtime", "GMT+0", "GMT-0"})
_MAX_OFFSET = timedelta(hours=18)


@lru_cache(maxsize=64)
def zone_of(name: str) -> tzinfo:
    """Return a time zone, by region or offset. Raises `EvaluationError` for an unknown one.

    The error's fact `beyond_years` is whether Spark may have it: a region where there are none at all.
    """
    if name in ("Z", "UTC", "GMT", "UT"):
        return UTC
    shown = _SHORT_MINUTE.sub(r"\1:0\2", _SHORT_HOUR.sub(r"\g<1>0\2:", _SHORT.get(name, name), count=1))
    found = _OFFSET.fullmatch(shown)
    if found is not None:
        hours, minutes, seconds = (*(int(part) for part in found.groups()[1:] if part), 0, 0)[:3]
        offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        if minutes < 60 and seconds < 60 and offset <= _MAX_OFFSET:
            return timezone(-offset if found[1] == "-" else offset)
    elif _REGION.fullmatch(shown):
        known = _regions()
        if shown in known:
            return ZoneInfo(shown)
        if not known or shown.startswith("SystemV/"):
            raise EvaluationError(
                f"the time zone {name!r} is not in this machine's database of zones",
                fix="" if known else "pip install tzdata",
                beyond_years=True,
            )
    raise EvaluationError(f"{name!r} is no time zone")


@lru_cache(maxsize=1)
def _regions() -> frozenset[str]:
    # By name, since file systems may ignore case.
    return frozenset(available_timezones()) - _NOT_IN_JAVA


def from_utc(moment: datetime, zone: tzinfo) -> datetime:
    """Convert a UTC time to local time in the zone, labelled as UTC."""
    try:
        return moment.astimezone(zone).replace(tzinfo=UTC, fold=0)
    except (OverflowError, ValueError):
        raise_overflow(f"{moment} in {zone}", "timestamp")


def to_utc(wall: datetime, zone: tzinfo) -> datetime:
    """Convert local time in the zone to UTC; an ambiguous time means its first occurrence."""
    try:
        return wall.replace(tzinfo=zone, fold=0).astimezone(UTC)
    except (OverflowError, ValueError):
        raise_overflow(f"{wall} in {zone}", "timestamp")


def other_clock(wall: datetime, zone: tzinfo, other: tzinfo) -> datetime:
    """Convert local time from one zone to another; an ambiguous time means its first occurrence."""
    try:
        return wall.replace(tzinfo=zone, fold=0).astimezone(other).replace(tzinfo=None, fold=0)
    except (OverflowError, ValueError):
        raise_overflow(f"{wall} in {zone}", "timestamp")
