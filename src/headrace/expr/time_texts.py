"""Texts of times, made from those of their days, minutes and seconds, each of which is made once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import TypeVar

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
