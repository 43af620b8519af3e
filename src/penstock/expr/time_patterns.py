"""Patterns of dates and times, by the letters of Spark: `yyyy-MM-dd HH:mm:ss`.

Times are in UTC, names in English.
Letters of eras, zones and weeks are refused by name, and so are optional parts in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import NoReturn

from penstock.errors import EvaluationError

MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July", "August", "September"),
    *("October", "November", "December"),
)
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_ORDINALS = ("1st", "2nd", "3rd", "4th")

Format = Callable[[datetime], str]


@dataclass(frozen=True, slots=True)
class _Field:
    """One run of a pattern letter.

    format: the text of a time.
    syntax: what is read, as a regular expression with one group; empty if Spark reads none.
    target: the part of a time that is read, and `read` its value.
    """

    format: Format
    syntax: str = ""
    target: str = ""
    read: Callable[[str], int] = int


def _number(target: str, width: int, value: Callable[[datetime], int], fixed: bool) -> _Field:
    syntax = rf"([0-9]{{{width}}})" if fixed else "([0-9]{1,19})"
    return _Field(lambda t: f"{value(t):0{width}d}", syntax, target)


def _names(target: str, names: tuple[str, ...], first: int, value: Callable[[datetime], int]) -> _Field:
    known = {name.lower(): at + first for at, name in enumerate(names)}
    # The longest first, as Java reads them.
    syntax = "|".join(sorted(names, key=len, reverse=True))
    return _Field(
        lambda t: names[value(t) - first], f"((?ai:{syntax}))", target, lambda text: known[text.lower()]
    )


def _year_of_two_digits(text: str) -> int:
    return 2000 + int(text)


def _short(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name[:3] for name in names)


def _quarter(t: datetime) -> int:
    return (t.month + 2) // 3


def _day_of_year(t: datetime) -> int:
    return t.timetuple().tm_yday


_LETTERS: Mapping[str, _Field] = {
    "y": _Field(lambda t: str(t.year), "([0-9]{1,19})", "year"),
    "yy": _Field(lambda t: f"{t.year % 100:02d}", "([0-9]{2})", "year", _year_of_two_digits),
    "yyy": _Field(lambda t: f"{t.year:03d}", "([0-9]{3})", "year"),
    "yyyy": _Field(lambda t: f"{t.year:04d}", "([0-9]{4})", "year"),
    "M": _number("month", 1, lambda t: t.month, False),
    "MM": _number("month", 2, lambda t: t.month, True),
    "MMM": _names("month", _short(MONTHS), 1, lambda t: t.month),
    "MMMM": _names("month", MONTHS, 1, lambda t: t.month),
    "d": _number("day", 1, lambda t: t.day, False),
    "dd": _number("day", 2, lambda t: t.day, True),
    "D": _number("day_of_year", 1, _day_of_year, False),
    "DD": _Field(lambda t: f"{_day_of_year(t):02d}"),
    "DDD": _number("day_of_year", 3, _day_of_year, True),
    "H": _number("hour", 1, lambda t: t.hour, False),
    "HH": _number("hour", 2, lambda t: t.hour, True),
    "k": _number("clock_hour", 1, lambda t: t.hour or 24, False),
    "kk": _number("clock_hour", 2, lambda t: t.hour or 24, True),
    "K": _number("half_hour", 1, lambda t: t.hour % 12, False),
    "KK": _number("half_hour", 2, lambda t: t.hour % 12, True),
    "h": _number("clock_half_hour", 1, lambda t: t.hour % 12 or 12, False),
    "hh": _number("clock_half_hour", 2, lambda t: t.hour % 12 or 12, True),
    "m": _number("minute", 1, lambda t: t.minute, False),
    "mm": _number("minute", 2, lambda t: t.minute, True),
    "s": _number("second", 1, lambda t: t.second, False),
    "ss": _number("second", 2, lambda t: t.second, True),
    "a": _names("half", ("AM", "PM"), 0, lambda t: t.hour // 12),
    "Q": _Field(lambda t: str(_quarter(t))),
    "QQ": _Field(lambda t: f"{_quarter(t):02d}"),
    "QQQ": _Field(lambda t: f"Q{_quarter(t)}"),
    "QQQQ": _Field(lambda t: f"{_ORDINALS[_quarter(t) - 1]} quarter"),
    "E": _Field(lambda t: DAYS[t.weekday()][:3]),
    "EE": _Field(lambda t: DAYS[t.weekday()][:3]),
    "EEE": _Field(lambda t: DAYS[t.weekday()][:3]),
    "EEEE": _Field(lambda t: DAYS[t.weekday()]),
}
_FIELDS = {**_LETTERS, **{run.replace("Q", "q"): each for run, each in _LETTERS.items() if "Q" in run}}
_MAX_FRACTION = 9
_RANGES = {
    "month": (1, 12),
    "day": (1, 31),
    "day_of_year": (1, 366),
    "hour": (0, 23),
    "clock_hour": (1, 24),
    "half_hour": (0, 11),
    "clock_half_hour": (1, 12),
    "minute": (0, 59),
    "second": (0, 59),
}


def _fraction(width: int) -> _Field:
    def microseconds(text: str) -> int:
        return int(f"{text:0<6.6}")

    return _Field(
        lambda t: f"{t.microsecond:06d}000"[:width], f"([0-9]{{1,{width}}})", "microsecond", microseconds
    )


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A pattern, in parts: fields and the text between them."""

    text: str
    parts: tuple[str | _Field, ...]
    syntax: re.Pattern[str] | None

    def format(self, moment: datetime) -> str:
        return "".join(part if isinstance(part, str) else part.format(moment) for part in self.parts)

    def parse(self, text: str) -> datetime | None:
        """Return the time that a text tells, what it leaves out being that of 1970; None if it tells none."""
        assert self.syntax is not None
        found = self.syntax.fullmatch(text)
        if found is None:
            return None
        values: dict[str, int] = {}
        fields = (part for part in self.parts if isinstance(part, _Field))
        for each, shown in zip(fields, found.groups(), strict=True):
            value = each.read(shown)
            low, high = _RANGES.get(each.target, (0, 10**18))
            if not low <= value <= high or values.setdefault(each.target, value) != value:
                return None
        return _moment(values)


def _moment(values: Mapping[str, int]) -> datetime | None:
    hour = _hour(values)
    if hour is None:
        return None
    try:
        day = _day(values)
        return datetime(
            day.year, day.month, day.day, hour, values.get("minute", 0), values.get("second", 0),
            values.get("microsecond", 0), UTC,
        )  # fmt: skip
    except (ValueError, OverflowError):
        return None


def _day(values: Mapping[str, int]) -> date:
    year = values.get("year", 1970)
    if "day_of_year" not in values or "year" not in values:
        return date(year, values.get("month", 1), values.get("day", 1))
    day = date(year, 1, 1) + timedelta(days=values["day_of_year"] - 1)
    if (
        day.year != year
        or values.get("month", day.month) != day.month
        or values.get("day", day.day) != day.day
    ):
        raise ValueError(values)
    return day


def _hour(values: Mapping[str, int]) -> int | None:
    """Return the hour of the day; None if two fields say different ones."""
    half = values.get("half")
    hours: set[int] = set()
    if "hour" in values:
        hours.add(values["hour"])
    if "clock_hour" in values:
        hours.add(values["clock_hour"] % 24)
    within = {values[name] % 12 for name in ("half_hour", "clock_half_hour") if name in values}
    if len(within) > 1 or len(hours) > 1:
        return None
    if hours:
        (hour,) = hours
        agrees = within <= {hour % 12} and half in (None, hour // 12)
        return hour if agrees else None
    return (half or 0) * 12 + next(iter(within), 0)


# -- reading a pattern -----------------------------------------------------------------------------


def _refuse(pattern: str, what: str) -> NoReturn:
    raise EvaluationError(
        f"the time pattern {pattern!r} has {what}, which has no counterpart here",
        fix="letters are y M d D E Q q H h k K m s S a; text stands in single quotes",
    )


def _parts(pattern: str) -> list[str | _Field]:
    parts: list[str | _Field] = []
    at = 0
    while at < len(pattern):
        character = pattern[at]
        if character == "'":
            text, at = _quoted(pattern, at)
            parts.append(text)
            continue
        if not (character.isascii() and character.isalpha()):
            if character in "[]{}#":
                _refuse(pattern, character)
            parts.append(character)
            at += 1
            continue
        end = at
        while pattern[end : end + 1] == character:
            end += 1
        run = pattern[at:end]
        if character == "S" and len(run) <= _MAX_FRACTION:
            parts.append(_fraction(len(run)))
        elif run in _FIELDS:
            parts.append(_FIELDS[run])
        else:
            _refuse(pattern, run)
        at = end
    return parts


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    """Return the text in quotes from `at`, and where it ends. Two quotes are one."""
    if pattern.startswith("''", at):
        return "'", at + 2
    text, at = "", at + 1
    while at < len(pattern):
        if pattern.startswith("''", at):
            text, at = f"{text}'", at + 2
        elif pattern[at] == "'":
            return text, at + 1
        else:
            text, at = text + pattern[at], at + 1
    _refuse(pattern, "a quotation that does not end")


@lru_cache(maxsize=256)
def format_pattern(pattern: str) -> TimePattern:
    """Read a pattern that formats times. Raises `EvaluationError`."""
    return TimePattern(pattern, tuple(_parts(pattern)), None)


@lru_cache(maxsize=256)
def parse_pattern(pattern: str) -> TimePattern:
    """Read a pattern that parses texts. Raises `EvaluationError`."""
    parts = _parts(pattern)
    syntax = ""
    loose = False
    for part in parts:
        if isinstance(part, str):
            # Java compares text without regard to case too.
            syntax += f"(?ai:{re.escape(part)})"
            loose = False
            continue
        if not part.syntax:
            _refuse(pattern, "a letter that only formats (E, Q, q, DD)")
        numeric = part.syntax.startswith("([0-9]")
        if loose and numeric:
            _refuse(pattern, "a number of any length before another number")
        loose = part.syntax == "([0-9]{1,19})" or (loose and not numeric)
        syntax += part.syntax
    return TimePattern(pattern, tuple(parts), re.compile(syntax, re.DOTALL))
