"""Date and time patterns with Spark's letters: `yyyy-MM-dd HH:mm:ss`.

Times are in UTC, names in English.
Letters of eras, zones and weeks are refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime, timedelta
from enum import Enum
from functools import lru_cache
from typing import NoReturn

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import raise_overflow
from headrace.expr.text_casts import TextCache

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
    target: the part of a time that is read, and `read` its value, None if it is none.
    digits: whether it is a number; `fixed`: one whose width may end a longer number before it.
    unit: what its text depends on; None: on the whole time.
    """

    format: Format
    syntax: str = ""
    target: str = ""
    read: Callable[[str], int | None] = int
    digits: bool = False
    fixed: bool = False
    unit: _Unit | None = None


class _Unit(Enum):
    """Unit of time that determines the text of a field."""

    DAY = "yMLdDEQq"
    SECOND = "HhKkmsa"


def _number(target: str, width: int, value: Callable[[datetime], int], most: int = 0) -> _Field:
    """Return a number field: one letter takes any digits and a sign, more take `width` to `most` digits."""
    syntax = r"(-?[0-9]{1,19})" if width == 1 else rf"([0-9]{{{width},{most or width}}})"
    read, fixed = _signed if width == 1 else int, width > 1 and most in (0, width)
    return _Field(lambda t: f"{value(t):0{width}d}", syntax, target, read, True, fixed)


def _signed(text: str) -> int | None:
    return None if text.startswith("-") and not int(text) else int(text)


def _year(width: int) -> _Field:
    """Return a year field. With four or more letters, a year of more digits needs a sign."""

    def read(text: str) -> int | None:
        if width < 4 or text[0] not in "+-":
            return _signed(text) if width < 4 or len(text) == width else None
        return _signed(text) if text[0] == "-" or len(text) > width + 1 else None

    sign = "[+-]?" if width >= 4 else "-?"
    return _Field(lambda t: f"{t.year:0{width}d}", rf"({sign}[0-9]{{{width},19}})", "year", read, True)


def _names(target: str, names: tuple[str, ...], first: int, value: Callable[[datetime], int]) -> _Field:
    known = {name.lower(): at + first for at, name in enumerate(names)}
    # The longest first, as Java reads them. Case folds per character, also of other scripts.
    syntax = "|".join(f"(?i:{name})" for name in sorted(names, key=len, reverse=True))
    return _Field(lambda t: names[value(t) - first], f"({syntax})", target, lambda text: known[_folded(text)])


def _folded(text: str) -> str:
    return text.upper().lower().replace("i\u0307", "i")


def _year_of_two_digits(text: str) -> int:
    return 2000 + int(text)


def _short(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name[:3] for name in names)


def _quarter(t: datetime) -> int:
    return (t.month + 2) // 3


def _day_of_year(t: datetime) -> int:
    return t.timetuple().tm_yday


def _clock(letter: str, target: str, value: Callable[[datetime], int]) -> dict[str, _Field]:
    return {letter * width: _number(target, width, value) for width in (1, 2)}


def _month(t: datetime) -> int:
    return t.month


_LETTERS: Mapping[str, _Field] = {
    **{"y" * width: _year(width) for width in (1, *range(3, 7))},
    "yy": _Field(
        lambda t: f"{t.year % 100:02d}", "([0-9]{2})", "year", _year_of_two_digits, digits=True, fixed=True
    ),
    **_clock("M", "month", _month),
    "MMM": _names("month", _short(MONTHS), 1, _month),
    "MMMM": _names("month", MONTHS, 1, _month),
    **_clock("d", "day", lambda t: t.day),
    **{"D" * width: _number("day_of_year", width, _day_of_year, 3) for width in (1, 2, 3)},
    **_clock("H", "hour", lambda t: t.hour),
    **_clock("k", "clock_hour", lambda t: t.hour or 24),
    **_clock("K", "half_hour", lambda t: t.hour % 12),
    **_clock("h", "clock_half_hour", lambda t: t.hour % 12 or 12),
    **_clock("m", "minute", lambda t: t.minute),
    **_clock("s", "second", lambda t: t.second),
    "a": _names("half", ("AM", "PM"), 0, lambda t: t.hour // 12),
    "Q": _Field(lambda t: str(_quarter(t))),
    "QQ": _Field(lambda t: f"{_quarter(t):02d}"),
    "QQQ": _Field(lambda t: f"Q{_quarter(t)}"),
    "QQQQ": _Field(lambda t: f"{_ORDINALS[_quarter(t) - 1]} quarter"),
    **{"E" * width: _Field(lambda t: DAYS[t.weekday()][:3]) for width in (1, 2, 3)},
    "EEEE": _Field(lambda t: DAYS[t.weekday()]),
}
_SAME = {"L": "M", "q": "Q"}
"""Letters of what stands alone, which in English is as what stands in a date."""

_MAX_FRACTION = 9
_MAX_YEAR = 999_999_999
_RANGES = {
    "year": (-_MAX_YEAR, _MAX_YEAR),
    "month": (1, 12),
    "day": (1, 31),
    "day_of_year": (1, 366),
    "hour": (0, 23),
    "half_hour": (-(10**19), 10**19),  # tested where Java does
    "clock_hour": (1, 24),
    "clock_half_hour": (1, 12),
    "minute": (0, 59),
    "second": (0, 59),
}


def _fraction(width: int) -> _Field:
    return _Field(
        lambda t: f"{t.microsecond:06d}000"[:width],
        f"([0-9]{{1,{width}}})",
        "nanosecond",
        lambda text: int(f"{text:0<9}"),
        digits=width == 1,
        fixed=width == 1,
    )


@dataclass(frozen=True, slots=True)
class TimePattern:
    """A pattern in parts: fields, the text between them, and brackets around optional parts."""

    text: str
    parts: tuple[str | _Field | _Bracket, ...]
    syntax: re.Pattern[str] | None
    formats: tuple[Format, ...] = ()

    def format(self, moment: datetime) -> str:
        return "".join([format(moment) for format in self.formats])

    def parse(self, text: str) -> datetime | None:
        """Parse a time, with missing parts taken from 1970; None if the text does not match.

        Raises `EvaluationError` outside the years 1 to 9999.
        """
        assert self.syntax is not None
        found = self.syntax.fullmatch(text)
        if found is None:
            return None
        values: dict[str, int] = {}
        fields = (part for part in self.parts if isinstance(part, _Field))
        for each, shown in zip(fields, found.groups(), strict=True):
            if shown is None:
                continue
            value = each.read(shown)
            low, high = _RANGES.get(each.target, (0, 10**18))
            if value is None or not low <= value <= high or values.setdefault(each.target, value) != value:
                return None
        return _moment(values, text)


def _moment(values: Mapping[str, int], text: str) -> datetime | None:
    hour, year = _hour(values), values.get("year", 1970)
    known = MINYEAR <= year <= MAXYEAR
    # Beyond, in another year that has the same days.
    day = _day(values, year if known else 2000 + year % 400)
    if hour is None or day is None:
        return None
    if not known:
        raise_overflow(text, "timestamp")
    minute, second = values.get("minute", 0), values.get("second", 0)
    micros = values.get("nanosecond", 0) // 1000
    return datetime(day.year, day.month, day.day, hour, minute, second, micros, UTC)


def _day(values: Mapping[str, int], year: int) -> date | None:
    month, day, of_year = (values.get(name) for name in ("month", "day", "day_of_year"))
    try:
        if of_year is None:
            return date(year, month or 1, day or 1)
        found = date(year, 1, 1) + timedelta(days=of_year - 1)
    except (ValueError, OverflowError):
        return None
    agrees = found.year == year and month in (None, found.month) and day in (None, found.day)
    return found if agrees else None


def _hour(values: Mapping[str, int]) -> int | None:
    """Return the hour of the day; None if two compared fields disagree."""
    half = values.get("half")
    hour, agrees = _one_of(values, "hour", "clock_hour", 24)
    within, agrees_within = _one_of(values, "half_hour", "clock_half_hour", 12)
    if not (agrees and agrees_within):
        return None
    if hour is not None and None in (half, within) and _has_gap(values):
        # Java makes no time of these, and compares and tests none.
        return hour
    if within is not None and not 0 <= within < 12:
        return None
    if half is not None and within is not None:
        together = half * 12 + within
        return together if hour in (None, together) else None
    if hour is None:
        return within if within is not None else 12 * (half or 0)
    return hour if half in (None, hour // 12) and within in (None, hour % 12) else None


def _one_of(values: Mapping[str, int], name: str, clock: str, hours: int) -> tuple[int | None, bool]:
    """Return the hour from either field, and whether both agree."""
    one, other = values.get(name), values.get(clock)
    other = None if other is None else other % hours
    return (one if other is None else other), one is None or other is None or one == other


def _has_gap(values: Mapping[str, int]) -> bool:
    """Return whether a unit is missing between others."""
    minute, second, fraction = (name in values for name in ("minute", "second", "nanosecond"))
    return (second or fraction) if not minute else (fraction and not second)


# -- reading a pattern -----------------------------------------------------------------------------


class _Bracket(Enum):
    OPEN, CLOSE = "(?>", ")?+"


def _refuse(pattern: str, what: str) -> NoReturn:
    raise EvaluationError(
        f"the time pattern {pattern!r} has {what}, which has no counterpart here",
        fix="letters are y M L d D E Q q H h k K m s S a; text stands in single quotes",
    )


def _parts(pattern: str) -> Iterator[str | _Field | _Bracket]:
    at = depth = 0
    while at < len(pattern):
        character = pattern[at]
        end = at + 1
        if character == "'":
            text, end = _quoted(pattern, at)
            yield text
        elif character in "[]":
            depth += 1 if character == "[" else -1
            if depth < 0:
                _refuse(pattern, "a bracket that closes none")
            yield _Bracket.OPEN if character == "[" else _Bracket.CLOSE
        elif character in "{}#":
            _refuse(pattern, character)
        elif character.isascii() and character.isalpha():
            while pattern[end : end + 1] == character:
                end += 1
            yield _field(pattern, character, end - at)
        else:
            yield character
        at = end
    # Java closes the others at the end.
    yield from [_Bracket.CLOSE] * depth


def _field(pattern: str, letter: str, count: int) -> _Field:
    if letter == "S" and count <= _MAX_FRACTION:
        return _fraction(count)
    found = _LETTERS.get(_SAME.get(letter, letter) * count)
    if found is None:
        _refuse(pattern, letter * count)
    return replace(found, unit=next(unit for unit in _Unit if letter in unit.value))


def _quoted(pattern: str, at: int) -> tuple[str, int]:
    """Return the quoted text that starts at `at`, and its end. Two quotes stand for a literal one."""
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
    """Parse a pattern for formatting times. Raises `EvaluationError`."""
    parts = tuple(_parts(pattern))
    fields = [part for part in parts if not isinstance(part, _Bracket)]
    return TimePattern(pattern, parts, None, tuple(_formats(fields)))


def _formats(parts: list[str | _Field]) -> Iterator[Format]:
    """Yield formatters of the parts, one for successive parts that depend on the same unit of time."""
    while parts:
        unit = next((part.unit for part in parts if isinstance(part, _Field)), None)
        count = next(
            (at for at, part in enumerate(parts) if isinstance(part, _Field) and part.unit is not unit),
            len(parts),
        )
        together, parts = parts[:count], parts[count:]
        yield _format_of(unit, together)


def _format_of(unit: _Unit | None, parts: list[str | _Field]) -> Format:
    def whole(moment: datetime) -> str:
        return "".join([part if isinstance(part, str) else part.format(moment) for part in parts])

    match unit:
        case _Unit.DAY:
            days = TextCache[int](lambda ordinal: whole(datetime.fromordinal(ordinal)))
            return lambda moment: days[moment.toordinal()]
        case _Unit.SECOND:
            seconds = TextCache[int](lambda second: whole(datetime.min + timedelta(seconds=second)))
            return lambda moment: seconds[(moment.hour * 60 + moment.minute) * 60 + moment.second]
        case None:
            return whole


@lru_cache(maxsize=256)
def parse_pattern(pattern: str) -> TimePattern:
    """Parse a pattern for parsing texts. Raises `EvaluationError`.

    As Java does, a field takes what it can, and gives back only what fixed ones after a number need.
    """
    read = pattern
    while "S" in read and read.endswith("''"):
        read = read[:-2]  # lost where Spark cuts a pattern with fractions at its quotes
    parts = tuple(_parts(read))
    syntax = ""
    is_number = False
    targets = list[str]()
    for part in parts:
        if is_number and not (isinstance(part, _Field) and part.fixed):
            syntax += ")"
            is_number = False
        if isinstance(part, _Bracket):
            syntax += part.value
        elif isinstance(part, str):
            # Java compares text without regard to case too.
            syntax += f"(?i:{re.escape(part)})"
        else:
            if not part.syntax:
                _refuse(pattern, "a letter that only formats (E, Q, q)")
            if part.target in targets and any(isinstance(each, _Bracket) for each in parts):
                _refuse(pattern, f"the {part.target.replace('_', ' ')} twice, and brackets")
            targets.append(part.target)
            if part.digits and not is_number:
                syntax, is_number = f"{syntax}(?>", True
            syntax += part.syntax if part.digits else f"(?>{part.syntax})"
    syntax += ")" if is_number else ""
    return TimePattern(pattern, parts, re.compile(syntax, re.DOTALL))
