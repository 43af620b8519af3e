"""Parsing of values written as text, with one grammar for JSON strings and CSV fields.

The grammar is stricter than Python's own parsers, which accept "1_000", " 7" or "2001-W01-1", so that all
engines read the same values. Epoch times are integers since 1970: dates in days, timestamps in a given
unit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from functools import singledispatch
from typing import Any, Literal, TypeAlias, get_args

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import NAN, float32
from headrace.expr.functions import intervals
from headrace.expr.types import (
    FLOAT64,
    INT32,
    INT64,
    TIMESTAMP,
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)

_INT = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"[+-]?([0-9]+(?:\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"(?:[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2})?(\.[0-9]+)?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?)?"
)
# Timestamps that `datetime.fromisoformat` parses correctly after a missing zone is added.
_PLAIN_TIMESTAMP = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3}|\.[0-9]{6})?(Z|\+00:00)?"
)
NON_FINITE: dict[str, float] = {"NaN": NAN}
for _name in ("Inf", "Infinity", "INF"):
    NON_FINITE.update({_name: float("inf"), "+" + _name: float("inf"), "-" + _name: float("-inf")})


class UnfitValue(Exception):
    """Raised for a value that does not fit its declared type; the text names both."""


def shortened(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def unfit(needed: object, found: object) -> UnfitValue:
    return UnfitValue(f"expected {needed}, found {shortened(repr(found))}")


@singledispatch
def parser_of(data_type: DataType) -> Callable[[str], Any]:
    """Build a parser from text to internal values, which raises `UnfitValue`.

    Raises TypeError for types without a text form.
    """
    raise TypeError(f"{data_type} cannot be written as text")


@parser_of.register
def _(data_type: BoolType) -> Callable[[str], Any]:
    values = {"true": True, "false": False}

    def boolean(text: str) -> bool:
        value = values.get(text.lower())
        if value is None:
            raise unfit("true or false", text)
        return value

    return boolean


def whole_number(text: str, bits: int) -> int:
    if not _INT.fullmatch(text):
        raise unfit(f"an int{bits}", text)
    if len(text) > 40 and len(text.lstrip("+-0")) > 20:
        raise UnfitValue(f"{shortened(text)} is out of the range of int{bits}")
    return in_range(int(text), bits)


def in_range(value: int, bits: int) -> int:
    """Return the value, or raise `UnfitValue` if it does not fit a signed integer of `bits` bits."""
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        shown = str(value) if abs(value) < 10**60 else "it"
        raise UnfitValue(f"{shown} is out of the range of int{bits}")
    return value


@parser_of.register
def _(data_type: IntegerType) -> Callable[[str], Any]:
    bits = data_type.bits
    return lambda text: whole_number(text, bits)


@parser_of.register
def _(data_type: Float64Type) -> Callable[[str], Any]:
    def number(text: str) -> float:
        if _NUMBER.fullmatch(text):
            return float(text)
        value = NON_FINITE.get(text)
        if value is None:
            raise unfit("a number", text)
        return value

    return number


def exact_decimal(value: Decimal, data_type: DecimalType) -> Decimal:
    """Round to `scale` digits after the point, or raise `UnfitValue` if that loses digits."""
    if not value.is_finite():
        raise unfit(data_type, str(value))
    with localcontext() as context:
        context.prec = 80
        if value and value.adjusted() >= data_type.precision - data_type.scale:
            raise UnfitValue(f"{shortened(str(value))} has too many digits for {data_type}")
        fitted = value.quantize(Decimal(1).scaleb(-data_type.scale))
        if fitted != value:
            raise UnfitValue(
                f"{shortened(str(value))} has more than {data_type.scale} digits after the point"
            )
    return fitted or abs(fitted)


@parser_of.register
def _(data_type: DecimalType) -> Callable[[str], Any]:
    def decimal(text: str) -> Decimal:
        if not _NUMBER.fullmatch(text) or len(text) > 1000:
            raise unfit(data_type, text)
        try:
            value = Decimal(text)
        except InvalidOperation:  # an exponent of 19 digits
            raise unfit(data_type, text) from None
        return exact_decimal(value, data_type)

    return decimal


def unicode_text(text: str) -> str:
    """Return the text, or raise `UnfitValue` for an unpaired surrogate, which UTF-8 cannot encode."""
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise UnfitValue("the text is not valid Unicode") from None
    return text


@parser_of.register
def _(data_type: StrType) -> Callable[[str], Any]:
    return unicode_text


@parser_of.register
def _(data_type: BytesType) -> Callable[[str], Any]:
    return lambda text: unicode_text(text).encode()


@parser_of.register
def _(data_type: DateType) -> Callable[[str], Any]:
    def day(text: str) -> date:
        if not _DATE.fullmatch(text):
            raise unfit("a date such as 2001-12-31", text)
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise UnfitValue(f"{text} is not a valid date") from None

    return day


@parser_of.register
def _(data_type: TimestampType) -> Callable[[str], Any]:
    """Parse ISO 8601 with "T" or a space; no zone means UTC; digits beyond microseconds are dropped.

    A zone may be an hour alone, "+00", as PostgreSQL and DuckDB write it.
    """

    def instant(text: str) -> datetime:
        if _PLAIN_TIMESTAMP.fullmatch(text):
            try:
                return datetime.fromisoformat(text if text.endswith(("Z", "+00:00")) else text + "Z")
            except ValueError:
                raise UnfitValue(f"{text} is not a valid time") from None
        match = _TIMESTAMP.fullmatch(text)
        if not match or (match[4] and not match[3]):
            raise unfit("a timestamp such as 2001-12-31T23:59:59Z", text)
        day, minutes, seconds, fraction, zone = match.groups()
        micros = fraction[:7].ljust(7, "0") if fraction else ""
        iso = f"{day}T{minutes or '00:00'}{seconds or ''}{micros}"
        try:
            moment = datetime.fromisoformat(iso + (zone or "Z").upper())
            return moment.astimezone(UTC)
        except (ValueError, OverflowError):
            raise UnfitValue(f"{text} is not a valid time") from None

    return instant


@parser_of.register
def _(data_type: TimestampNtzType) -> Callable[[str], Any]:
    """Parse like a timestamp that must have no zone."""
    instant = parser_of(TIMESTAMP)

    def local(text: str) -> datetime:
        if _WITH_ZONE.search(text):
            raise unfit("a timestamp without a zone, such as 2001-12-31T23:59:59", text)
        return instant(text).replace(tzinfo=None)

    return local


_WITH_ZONE = re.compile(r"[A-SU-Za-su-z]|:.*[+-]")


@parser_of.register
def _(data_type: Float32Type) -> Callable[[str], Any]:
    number = parser_of(FLOAT64)
    return lambda text: float32(number(text))


@parser_of.register
def _(data_type: IntervalType) -> Callable[[str], Any]:
    def span(text: str) -> timedelta:
        try:
            return intervals.of_text(text, data_type.first, data_type.last)
        except EvaluationError:
            raise unfit(f"an {data_type} such as INTERVAL '1 02:03:04' DAY TO SECOND", text) from None

    return span


EpochUnit: TypeAlias = Literal["millis", "micros", "nanos"]
EPOCH_UNITS: tuple[str, ...] = get_args(EpochUnit)

Restore: TypeAlias = Callable[[Any], Any]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = date(1970, 1, 1)


@singledispatch
def with_integer_times(data_type: DataType) -> DataType:
    """Replace the times in a type with integers."""
    return data_type


@with_integer_times.register
def _(data_type: DateType) -> DataType:
    return INT32


@with_integer_times.register(TimestampType)
@with_integer_times.register(TimestampNtzType)
def _(data_type: DataType) -> DataType:
    return INT64


@with_integer_times.register
def _(data_type: ListType) -> DataType:
    return ListType(with_integer_times(data_type.element), data_type.nullable)


@with_integer_times.register
def _(data_type: MapType) -> DataType:
    key, value = with_integer_times(data_type.key), with_integer_times(data_type.value)
    return MapType(key, value, data_type.nullable)


@with_integer_times.register
def _(data_type: StructType) -> DataType:
    return StructType(tuple(Field(f.name, with_integer_times(f.type), f.nullable) for f in data_type.fields))


@singledispatch
def epoch_restorer(data_type: DataType, unit: EpochUnit) -> Restore | None:
    """Build a converter from non-null epoch values to internal ones, or return None if none is needed.

    The converter raises `UnfitValue`.
    """
    return None


@epoch_restorer.register
def _(data_type: DateType, unit: EpochUnit) -> Restore | None:
    def day(days: int) -> date:
        try:
            return _DAY + timedelta(days)
        except OverflowError:
            raise UnfitValue(f"{days} days after 1970 is not a valid date") from None

    return day


@epoch_restorer.register
def _(data_type: TimestampType, unit: EpochUnit) -> Restore | None:
    numerator, denominator = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}[unit]

    def moment(count: int) -> datetime:
        try:
            return _EPOCH + timedelta(microseconds=count * numerator // denominator)
        except OverflowError:
            raise UnfitValue(f"{count} {unit} after 1970 is not a valid time") from None

    return moment


@epoch_restorer.register
def _(data_type: TimestampNtzType, unit: EpochUnit) -> Restore | None:
    restore = epoch_restorer(TIMESTAMP, unit)
    assert restore is not None
    return lambda count: restore(count).replace(tzinfo=None)


@epoch_restorer.register
def _(data_type: ListType, unit: EpochUnit) -> Restore | None:
    inner = epoch_restorer(data_type.element, unit)
    return None if inner is None else lambda values: tuple(None if v is None else inner(v) for v in values)


@epoch_restorer.register
def _(data_type: StructType, unit: EpochUnit) -> Restore | None:
    return epoch_row_restorer(data_type.fields, unit)


@epoch_restorer.register
def _(data_type: MapType, unit: EpochUnit) -> Restore | None:
    return epoch_restorer(data_type.entries, unit)


def epoch_row_restorer(fields: Sequence[Field], unit: EpochUnit) -> Restore | None:
    """Build a converter for rows of these columns, like `epoch_restorer`; `UnfitValue` names the column."""
    parts = [(f.name, epoch_restorer(f.type, unit)) for f in fields]
    if all(part is None for _, part in parts):
        return None

    def row(values: tuple[Any, ...]) -> tuple[Any, ...]:
        out: list[Any] = []
        for (name, part), value in zip(parts, values):
            try:
                out.append(value if part is None or value is None else part(value))
            except UnfitValue as problem:
                raise UnfitValue(f"{name}: {problem}") from None
        return tuple(out)

    return row
