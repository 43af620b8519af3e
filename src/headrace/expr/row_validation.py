"""Row-by-row validation of users' rows, for rows that `from_user` cannot accept in bulk."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import singledispatch
from typing import Any, cast

from headrace.errors import BadRow, did_you_mean
from headrace.expr.code_runtime import NAN, float32, float32_of_exact
from headrace.expr.types import (
    AnyType,
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
    Schema,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
    fits_interval,
)
from headrace.expr.value_keys import distinct_entries


class _Refused(Exception):
    """Raised for a value that does not fit its type: reason, fix, expected type, path within the column."""

    def __init__(self, reason: str = "", fix: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.fix = fix
        self.path = ""
        self.expected: str | None = None
        self.value: object = None

    def of(self, type: DataType, nullable: bool, value: object) -> _Refused:
        """Set the expected type and the value, unless an inner value has set them. Returns itself."""
        if self.expected is None:
            self.expected = f"{type}{' or None' if nullable else ''}"
            self.value = value
        return self

    def inside(self, path: str) -> _Refused:
        """Prepend `path` to the path within the column. Returns itself."""
        self.path = path + self.path
        return self


@dataclass(frozen=True, slots=True)
class RowValidator:
    """Row-by-row converter for one schema.

    fix: advice about a value of another type, if the caller knows better. elsewhere: see `from_user`.
    """

    schema: Schema
    what: str
    fix: str = ""
    elsewhere: Mapping[type, str] = field(default_factory=dict[type, str])

    def convert(self, row: object, number: int) -> tuple[Any, ...]:
        """Convert a row. Raises `BadRow` with the row's `number`, counted from 0."""
        fields = self.schema.fields
        if type(row) in self.elsewhere:
            raise self._bad_shape(row, number)
        if self.schema.scalar:
            return (self._value(fields[0], row, number),)
        values = _fields_of(row, fields)
        if values is None:
            raise self._bad_shape(row, number)
        return tuple(self._value(f, v, number) for f, v in zip(fields, values, strict=True))

    def check_weight(self, weight: object, number: int) -> int:
        """Check the weight of row `number`. Raises `BadRow` unless it is an `int`."""
        if type(weight) is int:
            return weight
        raise BadRow(
            f"{self.what}, row {number}: the weight must be int,"
            f" got {type(weight).__name__} {_shown(weight)}",
            why="A weight says how many copies of the row come (positive) or go (negative).",
            row=number,
            field="weight",
            expected="int",
            found=type(weight).__name__,
        )

    def _value(self, field: Field, value: object, number: int) -> object:
        try:
            return _converted(field.type, field.nullable, value)
        except _Refused as refused:
            raise self._bad_value(field, number, refused) from None

    def _bad_value(self, field: Field, number: int, refused: _Refused) -> BadRow:
        found = type(refused.value).__name__
        name = field.name + refused.path
        got = "None" if refused.value is None else f"{found} {_shown(refused.value)}"
        return BadRow(
            f"{self.what}, row {number}: {name!r} must be {refused.expected}, got {got}",
            why=refused.reason,
            fix=self.fix or refused.fix,
            row=number,
            field=name,
            expected=refused.expected,
            found=found,
        )

    def _bad_shape(self, row: object, number: int) -> BadRow:
        wanted = self.schema.row_class.__name__ if self.schema.row_class is not None else "a tuple"
        found = type(row).__name__
        fix = self.elsewhere.get(type(row), "")
        is_tuple = isinstance(row, tuple) and not fix
        size = f" of {len(cast('tuple[Any, ...]', row))}" if is_tuple else ""
        problem = f"must be {wanted}, got {found}{size}"
        if isinstance(row, Mapping):
            problem, fix = self._other_columns(cast("Mapping[str, object]", row))
        return BadRow(
            f"{self.what}, row {number} {problem} {_shown(cast('object', row))}",
            why=f"Its columns are {self.schema}.",
            fix=fix,
            row=number,
            field=None,
            expected=wanted,
            found=found,
        )

    def _other_columns(self, row: Mapping[str, object]) -> tuple[str, str]:
        """Describe the missing or unknown columns of a row with names, and suggest a fix."""
        known = self.schema.names
        unknown = [name for name in row if name not in known]
        missing = [f.name for f in self.schema.fields if f.name not in row and not f.nullable]
        lacks = [f"no column {missing[0]!r}"] if missing else []
        excess = [f"an unknown column {unknown[0]!r}"] if unknown else []
        fix = "give the column, or declare it `| None` if it may be missing"
        if unknown:
            instead = did_you_mean(unknown[0], known, lambda near: f"{near!r} instead of {unknown[0]!r}")
            fix = instead or (fix if missing else "leave the column out, or declare it in the row class")
        return f"has {', but '.join(lacks + excess)}:", fix


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 80 else shown[:77] + "..."


def _fields_of(row: object, fields: tuple[Field, ...]) -> tuple[object, ...] | None:
    """Return the values of a row by position (tuple, list) or name (dataclass, mapping); None if invalid."""
    if isinstance(row, tuple | list):
        values = tuple(cast("tuple[object, ...]", row))
        return values if len(values) == len(fields) else None
    if dataclasses.is_dataclass(row) and not isinstance(row, type):
        if any(not hasattr(row, f.name) for f in fields):
            return None
        return tuple(getattr(row, f.name) for f in fields)
    if isinstance(row, Mapping):
        named = cast("Mapping[str, object]", row)
        if set(named) - {f.name for f in fields}:
            return None
        if any(f.name not in named and not f.nullable for f in fields):
            return None
        return tuple(named.get(f.name) for f in fields)
    return None


def _converted(type: DataType, nullable: bool, value: object) -> object:
    try:
        if value is not None:
            return _convert(type, value)
        if nullable:
            return None
        raise _Refused("It is not nullable; `T | None` in the row class would make it so.")
    except _Refused as refused:
        raise refused.of(type, nullable, value) from None


@singledispatch
def _convert(type: DataType, value: object) -> object:
    raise _Refused(f"no rule for {type}")


@_convert.register(BoolType)
def _bool(type: BoolType, value: object) -> object:
    if value is True or value is False:
        return value
    raise _Refused("Only True and False are bool.")


@_convert.register(AnyType)
def _any(type: AnyType, value: object) -> object:
    try:
        hash(value)
    except TypeError:
        instead = "frozenset" if isinstance(value, set) else "tuple"
        raise _Refused(f"It cannot be hashed, and rows are compared with rows: give a {instead}.") from None
    return NAN if isinstance(value, float) and value != value else value


@_convert.register(IntegerType)
def _integer(type: IntegerType, value: object) -> object:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _Refused(
            *(
                ("A bool or a float is not an int.", "convert it before")
                if isinstance(value, bool | float)
                else ()
            )
        )
    low, high = type.range
    if not low <= value <= high:
        raise _Refused(f"It does not fit {type.bits} bits.")
    return int(value)


@_convert.register(Float64Type)
def _float64(type: Float64Type, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused
    number = float(value)
    return number if number == number else NAN


@_convert.register(Float32Type)
def _float32(type: Float32Type, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Refused
    return float32(value) if isinstance(value, float) else float32_of_exact(value)


@_convert.register(DecimalType)
def _decimal(type: DecimalType, value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise _Refused("A float is not an exact decimal." if isinstance(value, float) else "")
    number = Decimal(value)
    if not number.is_finite():
        raise _Refused("NaN and infinities are not decimals.")
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int)
    unscaled = int("".join(map(str, digits)))
    shift = exponent + type.scale
    if shift < 0 and unscaled % 10**-shift:
        raise _Refused(f"It has more than {type.scale} digits after the point; round it before.")
    unscaled = unscaled * 10**shift if shift >= 0 else unscaled // 10**-shift
    if unscaled >= 10**type.precision:
        raise _Refused(f"It has more than {type.precision} digits.")
    return Decimal((sign if unscaled else 0, tuple(map(int, str(unscaled))), -type.scale))


@_convert.register(StrType)
def _str(type: StrType, value: object) -> object:
    if not isinstance(value, str):
        raise _Refused
    return str(value)


@_convert.register(BytesType)
def _bytes(type: BytesType, value: object) -> object:
    if not isinstance(value, bytes | bytearray):
        raise _Refused
    return bytes(value)


@_convert.register(DateType)
def _date(type: DateType, value: object) -> object:
    if not isinstance(value, date) or isinstance(value, datetime):
        raise _Refused("A datetime is not a date; take its .date()." if isinstance(value, datetime) else "")
    return date(value.year, value.month, value.day)


@_convert.register(TimestampType)
def _timestamp(type: TimestampType, value: object) -> object:
    if not isinstance(value, datetime):
        raise _Refused
    if value.tzinfo is None or value.utcoffset() is None:
        raise _Refused("It has no time zone: give one, such as tzinfo=timezone.utc.")
    try:
        moved = value.astimezone(UTC).replace(fold=0)
    except OverflowError:
        raise _Refused("It lies outside the years 1 to 9999 in UTC.") from None
    return moved if datetime is moved.__class__ else datetime.combine(moved.date(), moved.timetz())


@_convert.register(TimestampNtzType)
def _timestamp_ntz(type: TimestampNtzType, value: object) -> object:
    if not isinstance(value, datetime):
        raise _Refused
    if value.tzinfo is not None:
        raise _Refused("It has a time zone: convert it to the zone that is meant, and .replace(tzinfo=None).")
    return datetime.combine(value.date(), value.time().replace(fold=0))


@_convert.register(IntervalType)
def _interval(type: IntervalType, value: object) -> object:
    if not isinstance(value, timedelta):
        raise _Refused
    whole = timedelta(value.days, value.seconds, value.microseconds)
    if not fits_interval(whole):
        raise _Refused("It does not fit 64 bits of microseconds.")
    if whole % timedelta(microseconds=type.step):
        raise _Refused("It has a part that is less than the least unit of the column.")
    return whole


@_convert.register(StructType)
def _struct(type: StructType, value: object) -> object:
    values = _fields_of(value, type.fields)
    if values is None:
        raise _Refused
    return tuple(
        _inside(f.type, f.nullable, v, f".{f.name}") for f, v in zip(type.fields, values, strict=True)
    )


@_convert.register(ListType)
def _list(type: ListType, value: object) -> object:
    if not isinstance(value, list | tuple):
        raise _Refused
    items = cast("list[object] | tuple[object, ...]", value)
    return tuple(_inside(type.element, type.nullable, v, f"[{at}]") for at, v in enumerate(items))


@_convert.register(MapType)
def _map(type: MapType, value: object) -> object:
    if not isinstance(value, Mapping):
        raise _Refused
    entries = cast("Mapping[object, object]", value)
    made = distinct_entries(
        (_inside(type.key, False, k, "[key]"), _inside(type.value, type.nullable, v, f"[{k!r}]"))
        for k, v in entries.items()
    )
    if made is None:
        raise _Refused("Two of its keys are equal.")
    return made


def _inside(type: DataType, nullable: bool, value: object, path: str) -> object:
    try:
        return _converted(type, nullable, value)
    except _Refused as refused:
        raise refused.inside(path) from None
