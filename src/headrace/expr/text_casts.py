"""Casts between text and values, by the rules of Spark's ANSI mode."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import MAXYEAR, MINYEAR, UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, NoReturn, TypeVar

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import NAN, float32, float32_of_exact, raise_overflow
from headrace.expr.decimal_arithmetic import DecimalSpec, round_to_scale
from headrace.expr.time_zones import to_utc, zone_of

# --- texts of times, made from those of their days, minutes and seconds, each of which is mad -----


K = TypeVar("K")

_MOST = 1 << 16
"""Texts that are remembered at a time: the days of 180 years, more than half the seconds of a day."""

_TWO_DIGITS = tuple(f"{number:02d}" for number in range(60))
_MINUTES = tuple(tuple(f"{hour}:{minute}:" for minute in _TWO_DIGITS) for hour in _TWO_DIGITS[:24])
_MILLISECONDS = ("", *(f".{number:03d}".rstrip("0") for number in range(1, 1000)))


class Remembered(dict[K, str]):
    """Texts by what they are made of. Old ones are forgotten all at once."""

    def __init__(self, make: Callable[[K], str]) -> None:
        self._make = make

    def __missing__(self, key: K) -> str:
        if len(self) >= _MOST:
            self.clear()
        made = self[key] = self._make(key)
        return made


_days = Remembered[int](lambda ordinal: date.fromordinal(ordinal).isoformat())


def of_timestamp(value: datetime) -> str:
    """Format as year-month-day hour:minute:second, with the shortest fraction."""
    micros = value.microsecond
    if micros % 1000:
        fraction = f".{micros:06d}".rstrip("0")
    else:
        fraction = _MILLISECONDS[micros // 1000]
    minute = _MINUTES[value.hour][value.minute]
    return f"{_days[value.toordinal()]} {minute}{_TWO_DIGITS[value.second]}{fraction}"


def second_of(value: datetime) -> str:
    """Format as `of_timestamp`, without the fraction."""
    minute = _MINUTES[value.hour][value.minute]
    return f"{_days[value.toordinal()]} {minute}{_TWO_DIGITS[value.second]}"


def iso_of(value: datetime) -> str:
    """Format as year-month-dayThour:minute:second, with milliseconds."""
    clock = f"{_MINUTES[value.hour][value.minute]}{_TWO_DIGITS[value.second]}"
    return f"{_days[value.toordinal()]}T{clock}.{value.microsecond // 1000:03d}"


def day_of(value: datetime) -> str:
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
    """Return the first characters of a text, to be shown."""
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


def of_bool(value: bool) -> str:
    return "true" if value else "false"


def of_float(value: float) -> str:
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
    """Format the shortest digits that read back as a float of 32 bits, in Java's layout."""
    if value - value != 0.0 or value == 0.0:
        return of_float(value)
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
    "x_str_of_bool": of_bool,
    "x_str_of_float": of_float,
    "x_str_of_timestamp": of_timestamp,
    "x_day_of_timestamp": day_of,
    "x_second_of_timestamp": second_of,
    "x_f32_of_str": to_float32,
    "x_str_of_f32": of_float32,
    "x_str_of_bytes": of_bytes,
}
