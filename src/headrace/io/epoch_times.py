"""Epoch times, stored as integers since 1970: dates in days, timestamps in a given unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from functools import singledispatch
from typing import Any, Literal, TypeAlias, get_args

from headrace.expr.types import (
    INT32,
    INT64,
    TIMESTAMP,
    DataType,
    DateType,
    Field,
    ListType,
    MapType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.io.files.text_values import Unfit

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

    The converter raises `Unfit`.
    """
    return None


@epoch_restorer.register
def _(data_type: DateType, unit: EpochUnit) -> Restore | None:
    def day(days: int) -> date:
        try:
            return _DAY + timedelta(days)
        except OverflowError:
            raise Unfit(f"{days} days after 1970 is not a valid date") from None

    return day


@epoch_restorer.register
def _(data_type: TimestampType, unit: EpochUnit) -> Restore | None:
    numerator, denominator = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}[unit]

    def moment(count: int) -> datetime:
        try:
            return _EPOCH + timedelta(microseconds=count * numerator // denominator)
        except OverflowError:
            raise Unfit(f"{count} {unit} after 1970 is not a valid time") from None

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
    """Build a converter for rows of these columns, like `epoch_restorer`; `Unfit` names the column."""
    parts = [(f.name, epoch_restorer(f.type, unit)) for f in fields]
    if all(part is None for _, part in parts):
        return None

    def row(values: tuple[Any, ...]) -> tuple[Any, ...]:
        out: list[Any] = []
        for (name, part), value in zip(parts, values):
            try:
                out.append(value if part is None or value is None else part(value))
            except Unfit as problem:
                raise Unfit(f"{name}: {problem}") from None
        return tuple(out)

    return row
