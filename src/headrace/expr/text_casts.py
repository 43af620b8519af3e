"""Casts between text and values, by the rules of Spark's ANSI mode or by a format of numbers.

A format as in `to_number` and `to_char`, `S$9,999.99`, has digits, in groups between thousands separators,
perhaps a decimal point, and at its ends a sign or a currency. A run of digits that begins with 0 stands for
exactly so many digits; one that begins with 9, for at most so many.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime
from decimal import Context, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NoReturn, TypeVar

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import (
    NAN,
    DecimalSpec,
    float32,
    float32_of_exact,
    raise_overflow,
    round_to_scale,
)
from headrace.expr.time_texts import to_utc, zone_of
from headrace.expr.types import DecimalType
from headrace.expr.typing_rules import MAX_PRECISION

# --- texts of times, made from those of their days, minutes and seconds, each of which is mad -----


K = TypeVar("K")

_MOST = 1 << 16
"""Texts that are remembered at a time: the days of 180 years, more than half the seconds of a day."""

_TWO_DIGITS = tuple(f"{number:02d}" for number in range(60))
_MINUTES = tuple(tuple(f"{hour}:{minute}:" for minute in _TWO_DIGITS) for hour in _TWO_DIGITS[:24])
_MILLISECONDS = ("", *(f".{number:03d}".rstrip("0") for number in range(1, 1000)))


class TextCache(dict[K, str]):
    """Cache of texts by the values they are made from, cleared when it is full."""

    def __init__(self, make: Callable[[K], str]) -> None:
        self._make = make

    def __missing__(self, key: K) -> str:
        if len(self) >= _MOST:
            self.clear()
        made = self[key] = self._make(key)
        return made


_days = TextCache[int](lambda ordinal: date.fromordinal(ordinal).isoformat())


def format_timestamp(value: datetime) -> str:
    """Format as year-month-day hour:minute:second, with the shortest fraction."""
    micros = value.microsecond
    if micros % 1000:
        fraction = f".{micros:06d}".rstrip("0")
    else:
        fraction = _MILLISECONDS[micros // 1000]
    minute = _MINUTES[value.hour][value.minute]
    return f"{_days[value.toordinal()]} {minute}{_TWO_DIGITS[value.second]}{fraction}"


def second_of(value: datetime) -> str:
    """Format as `format_timestamp`, without the fraction."""
    minute = _MINUTES[value.hour][value.minute]
    return f"{_days[value.toordinal()]} {minute}{_TWO_DIGITS[value.second]}"


def iso_of(value: datetime) -> str:
    """Format as year-month-dayThour:minute:second, with milliseconds."""
    clock = f"{_MINUTES[value.hour][value.minute]}{_TWO_DIGITS[value.second]}"
    return f"{_days[value.toordinal()]}T{clock}.{value.microsecond // 1000:03d}"


def format_date(value: datetime) -> str:
    """Format as year-month-day."""
    return _days[value.toordinal()]


_JAVA_BLANK = "".join(map(chr, range(33)))
# Spark strips these of all but floats, decimals and zones.
BLANK = f"{_JAVA_BLANK}\x7f"
# Written so that there is one way to match a text: with two, a row of many digits takes the square of them.
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_FLOAT = re.compile(r"([+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[dDfF]?", re.ASCII)
_HEX_FLOAT = re.compile(r"([+-]?0[xX][0-9a-fA-F]*(?:\.[0-9a-fA-F]*)?[pP][+-]?[0-9]+)[dDfF]?", re.ASCII)
# Digits of any script, if Java has them in one character.
_DIGITS = r"(?:(?![\U00010000-\U0010FFFF])\d)"
_DECIMAL = re.compile(rf"[+-]?(?:{_DIGITS}+(?:\.{_DIGITS}*)?|\.{_DIGITS}+)(?:[eE][+-]?{_DIGITS}+)?")
_SPECIAL = {
    "nan": NAN,
    "+nan": NAN,
    "-nan": NAN,
    **{f"{sign}{name}": float(f"{sign}inf") for sign in ("", "+", "-") for name in ("inf", "infinity")},
}
_BOOLS = {
    **dict.fromkeys(("t", "true", "y", "yes", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "0"), False),
}
_DAY = re.compile(r"(?:\+(?!-))?(-?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
# A zone is allowed only after seconds.
_TIME = r"(\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?([^.\d].*)?)?)?"
_MOMENT = re.compile(
    rf"\+?(\d{{4,6}})(?:-(\d{{1,2}})(?:-(\d{{1,2}})(?:[ T]{_TIME})?)?)?", re.ASCII | re.DOTALL
)
TIME_ALONE = re.compile(r"(?:T(?=\d)|(?=\s*\d{1,2}:))(\s*\d{1,2}.*)", re.ASCII | re.DOTALL)


def shortened(text: str) -> str:
    """Shorten a text for display."""
    return text if len(text) <= 60 else text[:57] + "..."


def malformed_error(text: str, type: str) -> NoReturn:
    raise EvaluationError(f"{shortened(text)!r} cannot be read as {type}")


def _need_year(year: str, text: str, type: str) -> None:
    """Raise for years that only Spark supports."""
    if not MINYEAR <= int(year) <= MAXYEAR:
        raise_overflow(text, type)


def to_int(text: str, bits: int) -> int:
    """Parse an integer: a sign and digits only."""
    stripped = text.strip(BLANK)
    if _INTEGER.fullmatch(stripped):
        value = int(stripped)
        if -(1 << bits - 1) <= value < 1 << bits - 1:
            return value
    malformed_error(text, f"int{bits}")


def to_float(text: str) -> float:
    """Parse a float in Java's syntax, or nan, inf, infinity in any case."""
    stripped = text.strip(_JAVA_BLANK)
    plain = _FLOAT.fullmatch(stripped)
    if plain is not None:
        return float(plain[1])
    if stripped.lower() in _SPECIAL:
        return _SPECIAL[stripped.lower()]
    hexadecimal = _HEX_FLOAT.fullmatch(stripped)
    if hexadecimal is not None:
        try:
            return float.fromhex(hexadecimal[1])
        except (ValueError, OverflowError):
            pass
    malformed_error(text, "float64")


def to_decimal(text: str, shape: DecimalSpec) -> Decimal:
    """Parse a decimal with optional exponent, rounded half up to the scale."""
    stripped = text.strip(_JAVA_BLANK)
    if _DECIMAL.fullmatch(stripped):
        try:
            return round_to_scale(Decimal(stripped), shape)
        except InvalidOperation:
            pass
    malformed_error(text, str(shape.type))


def to_bool(text: str) -> bool:
    """Parse t, true, y, yes, 1, or f, false, n, no, 0, in any case."""
    value = _BOOLS.get(text.strip(BLANK).lower())
    if value is None:
        malformed_error(text, "bool")
    return value


def to_date(text: str) -> date:
    """Parse year, year-month or year-month-day. Text after the day and a space or T is ignored."""
    found = _DAY.fullmatch(text.strip(BLANK))
    if found is not None:
        _need_year(found[1], text, "date")
        try:
            return date(*(int(part or 1) for part in found.groups()))
        except (ValueError, OverflowError):
            pass
    malformed_error(text, "date")


def raise_current_day(text: str) -> NoReturn:
    shown = shortened(text)
    raise EvaluationError(
        f"{shown!r} is a time of the current day, which has no counterpart here", beyond_years=True
    )


def to_timestamp(text: str) -> datetime:
    """Parse ISO-8601 as Spark does: UTC without a zone, digits beyond microseconds dropped.

    Raises as for a time outside the years 1 to 9999 if there is no date: Spark takes the current one.
    """
    alone = TIME_ALONE.fullmatch(text.strip(BLANK))
    if alone is not None:
        try:
            to_timestamp(f"2000-01-01T{alone[1].lstrip()}")
        except EvaluationError:
            malformed_error(text, "timestamp")
        raise_current_day(text)
    found = _MOMENT.fullmatch(text.strip(BLANK))
    if found is not None:
        year, month, day, hour, minute, second, fraction, zone = found.groups()
        _need_year(year, text, "timestamp")
        try:
            moment = datetime(
                int(year),
                int(month or 1),
                int(day or 1),
                int(hour or 0),
                int(minute or 0),
                int(second or 0),
                int(f"{fraction or '':0<6.6}"),
                UTC,
            )
            return moment if zone is None else to_utc(moment, zone_of(zone.strip(_JAVA_BLANK)))
        except ValueError:
            pass
        except EvaluationError as error:
            if error.facts.get("beyond_years"):
                raise
    malformed_error(text, "timestamp")


def has_zone(text: str) -> bool:
    """Return whether a text has the form of a timestamp that names a zone."""
    found = _MOMENT.fullmatch(text.strip(BLANK))
    return found is not None and found[8] is not None


# -- values to text ------------------------------------------------------------------------

_LEAST_PLAIN = 1e-3
_GREATEST_PLAIN = 1e7


def format_bool(value: bool) -> str:
    return "true" if value else "false"


def format_float(value: float) -> str:
    """Format the shortest digits that read back as `value`, in Java's layout: 1.0E20, 0.001, Infinity."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    size = abs(value)
    if size == 0.0 or _LEAST_PLAIN <= size < _GREATEST_PLAIN:
        return repr(value)
    mantissa, _, exponent = f"{value!r}".partition("e")
    if not exponent:
        mantissa, _, exponent = _scientific(value).partition("e")
    if "." not in mantissa:
        # Java shows at least two digits: the nearest of all pairs that read back.
        nearest = f"{value:.1e}"
        mantissa = nearest.partition("e")[0] if float(nearest) == value else f"{mantissa}.0"
    return f"{mantissa}E{int(exponent)}"


def to_float32(text: str) -> float:
    """Parse a float and round it to 32 bits, once."""
    value = to_float(text)
    try:
        return float32_of_exact(Decimal(text.strip(_JAVA_BLANK).rstrip("dDfF")))
    except (ArithmeticError, ValueError):  # NaN, infinities, hexadecimal digits
        return float32(value)


def of_float32(value: float) -> str:
    """Format the shortest digits that read back as a 32-bit float, in Java's layout."""
    if value - value != 0.0 or value == 0.0:
        return format_float(value)
    shown = next(text for digits in range(9) if float32(float(text := f"{value:.{digits}e}")) == value)
    if _LEAST_PLAIN <= abs(value) < _GREATEST_PLAIN:
        plain = format(Decimal(shown), "f")
        return plain if "." in plain else f"{plain}.0"
    mantissa, _, exponent = shown.partition("e")
    if "." not in mantissa:
        nearest = f"{value:.1e}"
        mantissa = nearest.partition("e")[0] if float32(float(nearest)) == value else f"{mantissa}.0"
    return f"{mantissa}E{int(exponent)}"


def _scientific(value: float) -> str:
    for digits in range(17):
        shown = f"{value:.{digits}e}"
        if float(shown) == value:
            return shown
    return f"{value:.17e}"


def of_bytes(value: bytes) -> str:
    """Decode UTF-8 bytes."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise EvaluationError(f"{value[:20]!r} is not UTF-8 text") from None


NAMES: dict[str, Any] = {
    "x_int_of_str": to_int,
    "x_float_of_str": to_float,
    "x_decimal_of_str": to_decimal,
    "x_bool_of_str": to_bool,
    "x_date_of_str": to_date,
    "x_timestamp_of_str": to_timestamp,
    "x_str_of_bool": format_bool,
    "x_str_of_float": format_float,
    "x_str_of_timestamp": format_timestamp,
    "x_day_of_timestamp": format_date,
    "x_second_of_timestamp": second_of,
    "x_f32_of_str": to_float32,
    "x_str_of_f32": of_float32,
    "x_str_of_bytes": of_bytes,
}

_FORMAT = re.compile(
    r"(MI|S)?(\$)?((?:[09]+(?:[,G][09]+)*)?)(?:([.D])([09]*))?(PR|MI|S)?", re.ASCII | re.IGNORECASE
)
_EXACT = Context(prec=MAX_PRECISION)
JAVA_SPACES = r"[^\S\x85\xa0\u2007\u202f]"
"""Pattern of white space as Java has it: without spaces that forbid a line break."""
_SPACE = re.compile(JAVA_SPACES)


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """Format of numbers.

    first, last: signs before and after: S, MI, PR, or none. groups: the runs of digits before the point,
    from left to right. places: digits after the point; None without a point.
    """

    text: str
    first: str
    currency: bool
    groups: tuple[str, ...]
    places: int | None
    last: str

    @property
    def type(self) -> DecimalType:
        """Type of the numbers that it parses."""
        places = self.places or 0
        return DecimalType(sum(map(len, self.groups)) + places, places)

    def parse(self, text: str) -> Decimal:
        """Return the number in a text. Raises `EvaluationError` if the text does not follow the format."""
        number = self.parse_or_none(text)
        if number is None:
            raise EvaluationError(f"{text[:60]!r} does not follow the number format {self.text!r}")
        return number

    def parse_or_none(self, text: str) -> Decimal | None:
        """Return the number in a text, or None if the text does not follow the format.

        Raises `EvaluationError` for a digit before the point that the format has no place for, as Spark does.
        """
        return _Reading(self, text).number()

    def format(self, value: Decimal) -> str:
        """Format a number. If it has too many digits for the format, they are shown as #."""
        return _Writing(self, value).text()


@lru_cache(maxsize=256)
def number_format(text: str) -> NumberFormat:
    """Parse a number format. Raises `EvaluationError` if it is invalid."""
    found = _FORMAT.fullmatch(text)
    signs = [sign.upper() for sign in (found[1], found[6]) if sign] if found else []
    if found is None or not (found[3] or found[5]) or len(signs) > len(set(signs)):
        raise EvaluationError(
            f"{text!r} is no number format",
            fix="a sign (S or MI), $, digits (0 or 9) with commas, a point, digits, and a sign (S, MI or PR)",
        )
    groups = tuple(re.split("[,Gg]", found[3])) if found[3] else ()
    if sum(map(len, groups)) + len(found[5] or "") > MAX_PRECISION:
        raise EvaluationError(f"the number format {text!r} has more than {MAX_PRECISION} digits")
    places = None if found[4] is None else len(found[5])
    first, last = (found[1] or "").upper(), (found[6] or "").upper()
    return NumberFormat(text, first, found[2] is not None, groups, places, last)


def number_writer(text: str) -> Callable[[Decimal], str]:
    """Return the function that formats numbers. Raises `EvaluationError` for an invalid format."""
    return number_format(text).format


class _Reading:
    """Reader of a number's text, from left to right."""

    def __init__(self, format: NumberFormat, text: str) -> None:
        self._format = format
        self._text = text
        self._at = 0
        self._negative = False

    def number(self) -> Decimal | None:
        """Return the number; None if the text does not follow the format."""
        format = self._format
        opened = format.last == "PR" and self._skip("<")
        self._sign(format.first)
        if format.currency and not self._skip("$"):
            return None
        whole = self._digits(format.groups) if format.groups else ""
        places: str | None = ""
        runs = ("9" * format.places,) if format.places else ()
        if format.places is not None and self._skip("."):
            places = self._digits(runs) if runs else ""
        elif not format.groups:
            whole = self._digits(runs)
        if whole is None or places is None:
            return None
        if format.last == "PR":
            closed = self._skip(">")
            if opened != closed:
                return None
            self._negative ^= closed
        else:
            self._sign(format.last)
        if self._at < len(self._text) or not whole + places:
            return None
        if not format.groups and whole.strip("0"):
            raise_overflow(whole, str(format.type))
        scale = format.places or 0
        number = Decimal(f"{whole or '0'}.{places:0<{scale}}") if scale else Decimal(whole)
        return _EXACT.minus(number) if self._negative else number

    def _skip(self, character: str) -> bool:
        there = self._text.startswith(character, self._at)
        self._at += there
        return there

    def _sign(self, sign: str) -> None:
        if sign == "S" and self._skip("+"):
            return
        if sign and self._skip("-"):
            self._negative = not self._negative

    def _digits(self, runs: tuple[str, ...]) -> str | None:
        """Return the next digits; None if their grouping does not follow the format."""
        groups = [""]
        while self._at < len(self._text):
            character = self._text[self._at]
            if character.isdecimal():
                groups[-1] += str(int(character))
            elif character == ",":
                groups.append("")
            elif not _SPACE.fullmatch(character):
                break
            self._at += 1
        if len(groups) > len(runs):
            return None
        # Compared from the right.
        missing = len(runs) - len(groups)
        for run, group in zip(runs, [*[""] * missing, *groups], strict=True):
            if len(group) > len(run) or (run[0] == "0" and len(group) < len(run)):
                return None
        return "".join(groups)


class _Writing:
    """Writer of a number, from left to right."""

    def __init__(self, format: NumberFormat, value: Decimal) -> None:
        self._format = format
        self._negative = value < 0
        whole, _, places = f"{value.copy_abs():f}".partition(".")
        self._whole, self._places = whole.lstrip("0"), places.rstrip("0")
        self._written = ""

    def text(self) -> str:
        format = self._format
        count, scale = sum(map(len, format.groups)), format.places or 0
        fits = len(self._whole) <= count and len(self._places) <= scale
        digits = iter(f"{self._whole:>{count}}" if fits else "#" * count)
        if format.last == "PR" and self._negative:
            self._written += "<"
        self._sign(format.first)
        self._written += "$" * format.currency
        for at, run in enumerate(format.groups):
            if at:
                self._separator()
            for _ in run:
                self._digit(next(digits), run[0])
        if format.places is not None:
            if self._written.endswith(" "):
                self._written = f"{self._written[:-1]}0"
            self._written += "." + (f"{self._places:0<{scale}}" if fits else "#" * scale)
        if format.last == "PR":
            if self._negative:
                self._behind(">")
            else:
                self._point()
                self._written += "  "
        else:
            self._sign(format.last)
        self._point()
        return self._written

    def _sign(self, sign: str) -> None:
        if sign == "S" or (sign and self._negative):
            self._behind("-" if self._negative else "+")
        elif sign:
            self._point()
            self._written += " "

    def _behind(self, character: str) -> None:
        """Write a character after the number, before any trailing spaces."""
        self._point()
        written = self._written.rstrip(" ")
        self._written = written + character + self._written[len(written) :]

    def _point(self) -> None:
        """Replace a decimal point without digits after it by a space."""
        if self._written.endswith("."):
            self._written = f"{self._written[:-1]} "

    def _digit(self, digit: str, run: str) -> None:
        if digit != " ":
            self._written += digit
        elif run == "0":
            self._written += "0"
        else:
            self._space()

    def _separator(self) -> None:
        if self._written[-1:].isdigit():
            self._written += ","
        else:
            self._space()

    def _space(self) -> None:
        """Write a space before any trailing sign."""
        written = self._written.rstrip("+-<")
        self._written = f"{written} {self._written[len(written) :]}"
