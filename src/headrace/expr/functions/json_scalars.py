"""Scalars in JSON texts, converted as by Spark's `from_json`."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn, TypeAlias, TypeVar

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import EPOCH, NAN, DecimalSpec, float32, raise_overflow, round_to_scale
from headrace.expr.json_reader import SURROGATE, JsonReader, Token
from headrace.expr.json_writer import JsonWriter, float_of, quoted_in_bytes
from headrace.expr.text_casts import TIME_ALONE, has_zone, raise_current_day, to_date, to_timestamp
from headrace.expr.types import (
    BOOL,
    DATE,
    FLOAT32,
    FLOAT64,
    INTEGERS,
    STR,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
)

_WHOLE = re.compile(r"[+-]?\d+")
_NEGATIVE = re.compile(r"\s*-(?=\d{4})", re.ASCII)
_YEAR = re.compile(r"[+-]?\d+", re.ASCII)

_MAX_DAYS = 2**31
_MAX_YEAR = 5_881_580
_MAX_YEAR_OF_TIME = 294_247
_BASIC_PLANE = "\uffff"


def date_of(text: str) -> date | None:
    """Parse a date; None if the text is not a date. Raises outside the years 1 to 9999."""
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
    """Convert seconds since 1970 to a timestamp. Raises outside the years 1 to 9999."""
    # They become microseconds of 64 bits without a test.
    micros = (seconds * 1_000_000 + 2**63) % 2**64 - 2**63
    try:
        return EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        raise_overflow(seconds, "timestamp")


def timestamp_of(text: str) -> datetime | None:
    """Parse a timestamp; None if the text is not a timestamp.

    Raises outside the years 1 to 9999, and for a time without a date, which is one of the current day.
    """
    found = _read_moment(text)
    return _read_moment(text.replace("GMT", "")) if found is None and "GMT" in text else found


def timestamp_ntz_of(text: str) -> datetime | None:
    """Parse a timestamp without a zone; None if the text is not one. Raises outside the years 1 to 9999."""
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
    """Parse a date or timestamp; None if the text does not fit. Raises outside the years 1 to 9999.

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


T = TypeVar("T")


class Unfit(Exception):
    """Raised for a value that does not fit its type."""


class Partial(Exception):
    """Raised for a struct, list or map with a part that does not fit: `value` is the rest of it."""

    def __init__(self, value: tuple[Any, ...]) -> None:
        super().__init__()
        self.value = value


class ScalarReader(JsonReader):
    """Reader that keeps the error for the first date or time that only Spark can represent.

    It is raised at the end: if the text turns out malformed, the time is not part of the result.
    """

    __slots__ = ("error",)

    def __init__(self, text: str) -> None:
        super().__init__(text, controls=False, non_numbers=True)
        self.error: EvaluationError | None = None


Convert: TypeAlias = Callable[[ScalarReader], Any]
"""Reads the value whose first token was read, or is that of its name."""


def refuse(reader: ScalarReader) -> NoReturn:
    if reader.token is Token.STRING:
        # The reader moves to its end, or finds it malformed.
        reader.string()
    raise Unfit


NUMBERS = (Token.INTEGER, Token.FLOAT)


_SPECIAL = {
    "NaN": NAN,
    **dict.fromkeys(("Infinity", "+Infinity", "+INF"), float("inf")),
    **dict.fromkeys(("-Infinity", "-INF"), float("-inf")),
}


_DECIMAL = re.compile(r"[+-]?(?:\d+(?:\.(\d*))?|\.(\d+))(?:[eE]([+-]?\d+))?")


_MAX_SCALE = 2**31 - 1


_MAX_EXPONENT = 10


_LEAST_SIZE = 100


def _bool(reader: ScalarReader) -> bool:
    return reader.token is Token.TRUE


def _int(bits: int, reader: ScalarReader) -> int:
    value = int(reader.number)
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise Unfit
    return value


def _float(reader: ScalarReader) -> float:
    if reader.token is Token.STRING:
        special = _SPECIAL.get(reader.string())
        if special is None:
            raise Unfit
        return special
    value = float_of(reader.number) if reader.number != "-0" else 0.0
    return value if value == value else NAN


def decimal_of_json(spec: DecimalSpec, reader: ScalarReader) -> Decimal:
    text = reader.string().replace(",", "") if reader.token is Token.STRING else reader.number
    match = _DECIMAL.fullmatch(text)
    if match is None or max(text) > _BASIC_PLANE:
        raise Unfit
    exponent = match[3] or "0"
    size = exponent.lstrip("+-").lstrip("0")
    if len(size) > _MAX_EXPONENT:
        raise Unfit
    power = -int(size or 0) if exponent.startswith("-") else int(size or 0)
    if abs(len(match[1] or match[2] or "") - power) > _MAX_SCALE:
        raise Unfit
    value = Decimal(text)
    if not value or value.adjusted() < -_LEAST_SIZE:
        return round_to_scale(Decimal(0), spec)
    if value.adjusted() >= spec.type.precision:
        raise Unfit
    try:
        return round_to_scale(value, spec)
    except EvaluationError:
        raise Unfit from None


def _str(reader: ScalarReader) -> str:
    if reader.token is Token.STRING:
        return SURROGATE.sub("?", reader.string())
    writer = JsonWriter(quoted_in_bytes)
    writer.copy(reader)
    return writer.text()


def _date(reader: ScalarReader) -> date | None:
    return _kept(partial(date_of, reader.string()), reader)


def _timestamp(reader: ScalarReader) -> datetime | None:
    if reader.token is Token.INTEGER:
        return _kept(partial(timestamp_of_seconds, _int(64, reader)), reader)
    return _kept(partial(timestamp_of, reader.string()), reader)


def _timestamp_ntz(reader: ScalarReader) -> datetime | None:
    return _kept(partial(timestamp_ntz_of, reader.string()), reader)


def _kept(read: Callable[[], T | None], reader: ScalarReader) -> T | None:
    """Return a time, or keep its error for the end. Raises `Unfit` if the value is not a time."""
    try:
        found = read()
    except EvaluationError as error:
        reader.error = reader.error or error
        return None
    if found is None:
        raise Unfit
    return found


def _float32(reader: ScalarReader) -> float:
    return float32(_float(reader))


SCALAR_CONVERTERS: dict[DataType, tuple[Any, ...]] = {
    BOOL: (_bool, Token.TRUE, Token.FALSE),
    **{each: (partial(_int, each.bits), Token.INTEGER) for each in INTEGERS},
    FLOAT64: (_float, *NUMBERS, Token.STRING),
    FLOAT32: (_float32, *NUMBERS, Token.STRING),
    STR: (_str, *NUMBERS, Token.STRING, Token.TRUE, Token.FALSE, Token.START_OBJECT, Token.START_ARRAY),
    DATE: (_date, Token.STRING),
    TIMESTAMP: (_timestamp, Token.STRING, Token.INTEGER),
    TIMESTAMP_NTZ: (_timestamp_ntz, Token.STRING),
}
