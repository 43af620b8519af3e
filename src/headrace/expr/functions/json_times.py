"""Dates and timestamps in JSON texts, as `from_json` reads them: more forms than a cast takes.

"GMT" may stand anywhere, and whole numbers are days or seconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import EPOCH, raise_overflow
from headrace.expr.text_casts import TIME_ALONE, has_zone, raise_current_day, to_date, to_timestamp

_WHOLE = re.compile(r"[+-]?\d+")
_NEGATIVE = re.compile(r"\s*-(?=\d{4})", re.ASCII)
_YEAR = re.compile(r"[+-]?\d+", re.ASCII)

_MAX_DAYS = 2**31
_MAX_YEAR = 5_881_580
_MAX_YEAR_OF_TIME = 294_247
_BASIC_PLANE = "\uffff"


def date_of(text: str) -> date | None:
    """Return the date of a text; None if it is none. Raises outside the years 1 to 9999."""
    for shown in (text, text.replace("GMT", "")):
        found = _read(to_date, shown, _MAX_YEAR)
        if found is not None:
            return found
    if not _WHOLE.fullmatch(text) or max(text) > _BASIC_PLANE:
        return None
    try:
        days = int(text)
    except ValueError:  # of thousands of digits
        return None
    if not -_MAX_DAYS <= days < _MAX_DAYS:
        return None
    try:
        return EPOCH.date() + timedelta(days=days)
    except OverflowError:
        raise_overflow(text, "date")


def timestamp_of_seconds(seconds: int) -> datetime:
    """Return a time by seconds since 1970. Raises outside the years 1 to 9999."""
    # They become microseconds of 64 bits without a test.
    micros = (seconds * 1_000_000 + 2**63) % 2**64 - 2**63
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise_overflow(seconds, "timestamp")


def timestamp_of(text: str) -> datetime | None:
    """Return the time of a text; None if it is none.

    Raises outside the years 1 to 9999, and for a time without a date, which is one of the current day.
    """
    found = _read_moment(text)
    return _read_moment(text.replace("GMT", "")) if found is None and "GMT" in text else found


def timestamp_ntz_of(text: str) -> datetime | None:
    """Return the time of a text without a zone; None if it is none. Raises outside the years 1 to 9999."""
    if has_zone(_NEGATIVE.sub("", text)) or TIME_ALONE.fullmatch(text.rstrip()):
        return None
    found = _read_moment(text)
    return None if found is None else found.replace(tzinfo=None)


def _read_moment(text: str) -> datetime | None:
    shown = text.rstrip()
    alone = TIME_ALONE.fullmatch(shown)
    if alone is not None:
        if _read_moment(f"2000-01-01T{alone[1].lstrip()}") is None:
            return None
        raise_current_day(shown)
    negative = _NEGATIVE.match(shown)
    if negative is not None and _read_moment(shown[negative.end() :]) is not None:
        raise_overflow(shown, "timestamp")
    return _read(to_timestamp, text, _MAX_YEAR_OF_TIME)


def _read(read: Callable[[str], Any], text: str, last: int) -> Any:
    """Return a date or timestamp; None if the text is none. Raises outside the years 1 to 9999.

    last: year after which Spark has none either.
    """
    try:
        return read(text)
    except EvaluationError as error:
        if not error.facts.get("beyond_years"):
            return None
        year = _YEAR.search(text)
        assert year is not None
        # In another year of the same length, an error is one of the text.
        similar = f"{2000 + int(year[0]) % 400}{text[year.end() :]}"
        if abs(int(year[0])) > last or _read(read, similar, last) is None:
            return None
        raise
