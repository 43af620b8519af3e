"""Column and row types.

A row type is declared as a `NamedTuple` or a dataclass; its annotations become a `Schema`. Internally, a row
is always a plain tuple in field order: struct, list and map columns are tuples, too (a row must be hashable),
and timestamps are aware `datetime`s in UTC, those without a zone naive ones.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, ClassVar, TypeAlias

from headrace.shown import Shown

Row: TypeAlias = tuple[Any, ...]
Rows: TypeAlias = list[Row]


@dataclass(frozen=True, slots=True)
class DataType:
    """Base of the column types. Values of different types never mix.

    Types without parameters inherit its methods: types are equal if they have the same class.
    """

    def __str__(self) -> str:
        return type(self).__name__.removesuffix("Type").lower()


class BoolType(DataType):
    """Column type of `bool` values."""

    __slots__ = ()


class IntegerType(DataType):
    """Base of the column types of `int` values of a width in `bits`, with a sign. Overflow is an error."""

    __slots__ = ()
    bits: ClassVar[int]

    @property
    def range(self) -> tuple[int, int]:
        """The least and the greatest value."""
        return -(1 << self.bits - 1), (1 << self.bits - 1) - 1


class Int8Type(IntegerType):
    """Column type of `int` values in [-128, 128): Spark's TINYINT."""

    __slots__ = ()
    bits = 8


class Int16Type(IntegerType):
    """Column type of `int` values in [-2**15, 2**15): Spark's SMALLINT."""

    __slots__ = ()
    bits = 16


class Int32Type(IntegerType):
    """Column type of `int` values in [-2**31, 2**31): Spark's INT."""

    __slots__ = ()
    bits = 32


class Int64Type(IntegerType):
    """Column type of `int` values in [-2**63, 2**63): Spark's BIGINT."""

    __slots__ = ()
    bits = 64


class FloatingType(DataType):
    """Base of the column types of `float` values."""

    __slots__ = ()


class Float32Type(FloatingType):
    """Column type of `float` values of 32 bits, Spark's FLOAT. Results are rounded to these, as in Java."""

    __slots__ = ()


class Float64Type(FloatingType):
    """Column type of `float` values. NaN equals itself, groups as one key and sorts above every number.

    0.0 and -0.0 are also equal. Where equal rows or values are merged, both become 0.0; rows of append
    streams keep their zeros.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class DecimalType(DataType):
    """Column type of `decimal.Decimal` values: `precision` digits, `scale` of them after the point."""

    precision: int = 38
    scale: int = 18

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})"


class StrType(DataType):
    """Column type of `str` values, counted in code points."""

    __slots__ = ()


class BytesType(DataType):
    """Column type of `bytes` values."""

    __slots__ = ()


class DateType(DataType):
    """Column type of `datetime.date` values."""

    __slots__ = ()


class TimestampType(DataType):
    """Column type of `datetime.datetime` values: aware, in UTC, to the microsecond."""

    __slots__ = ()


class TimestampNtzType(DataType):
    """Column type of `datetime.datetime` values without a zone, to the microsecond: what a clock shows."""

    __slots__ = ()

    def __str__(self) -> str:
        return "timestamp_ntz"


INTERVAL_UNITS = (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000)
"""Microseconds of the units of intervals: days, hours, minutes, seconds."""


@dataclass(frozen=True, slots=True)
class IntervalType(DataType):
    """Column type of `datetime.timedelta` values, to the microsecond, within 2**63 of them.

    It is Spark's day-time interval. first, last: its greatest and its least unit (0 is days, 3 is seconds),
    by which it is written as text; casts cut what is less.
    """

    first: int = 0
    last: int = 3

    def __str__(self) -> str:
        first, last = (("day", "hour", "minute", "second")[at] for at in (self.first, self.last))
        return f"interval {first}" if first == last else f"interval {first} to {last}"

    @property
    def step(self) -> int:
        """Microseconds that all values are whole multiples of: those of the least unit, one for seconds."""
        return 1 if self.last == 3 else INTERVAL_UNITS[self.last]


def fits_interval(span: timedelta) -> bool:
    """Return whether a span fits 64 bits of microseconds."""
    # Of a plain number, since pandas has spans of its own.
    return -(2**63) <= span // timedelta(microseconds=1) < 2**63


class AnyType(DataType):
    """Column type of any hashable Python values, passed through unchanged (annotated `object` or `Any`).

    Expressions may pass it on, compare it for equality and test it for null, but nothing else. Where rows
    need an order (`max`, ties of `top_k`), values are ordered by `headrace.expr.sort_keys.any_key`. It is
    limited to this process: files, Arrow and Spark reject it.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class StructType(DataType):
    """Column type of nested rows: tuples internally, instances of the row class for users."""

    fields: tuple[Field, ...]
    row_class: type | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return "struct<" + ", ".join(str(f) for f in self.fields) + ">"


@dataclass(frozen=True, slots=True)
class ListType(DataType):
    """Column type of sequences with one element type: tuples internally."""

    element: DataType
    nullable: bool = False

    def __str__(self) -> str:
        return f"list<{self.element}{'?' if self.nullable else ''}>"


@dataclass(frozen=True, slots=True)
class MapType(DataType):
    """Column type of mappings: tuples of entries internally, which are pairs, and `dict`s for users.

    Keys are never null, differ, and hold no maps. nullable: whether values may be null.

    Maps with the same entries in another order are equal. Where equal rows or values are merged, entries are
    sorted by key; rows of append streams keep their order.
    """

    key: DataType
    value: DataType
    nullable: bool = False

    def __str__(self) -> str:
        return f"map<{self.key}, {self.value}{'?' if self.nullable else ''}>"

    @property
    def entries(self) -> ListType:
        """Type of the list of the entries, whose values are those of the map."""
        return ListType(StructType((Field("key", self.key), Field("value", self.value, self.nullable))))


@dataclass(frozen=True, slots=True)
class Field:
    """Named column. `nullable` means that it may contain `None`."""

    name: str
    type: DataType
    nullable: bool = False

    def __str__(self) -> str:
        return f"{self.name}: {self.type}{'?' if self.nullable else ''}"


@dataclass(frozen=True, slots=True)
class Schema(Shown):
    """Columns of a stream, in order, with the class of its rows.

    `scalar` marks a stream of bare values (`int`, `str`, ...): internally, a row is a 1-tuple of the column
    `value`; users and their functions see the value.
    """

    fields: tuple[Field, ...]
    row_class: type[Any] | None = field(default=None, compare=False, repr=False)
    scalar: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.fields)

    def position(self, name: str) -> int | None:
        """Return the position of a column, or None for an unknown name."""
        for at, f in enumerate(self.fields):
            if f.name == name:
                return at
        return None

    def __str__(self) -> str:
        return "(" + ", ".join(str(f) for f in self.fields) + ")"


BOOL = BoolType()
INT8 = Int8Type()
INT16 = Int16Type()
INT32 = Int32Type()
INT64 = Int64Type()
INTEGERS: tuple[IntegerType, ...] = (INT8, INT16, INT32, INT64)
RANGES: dict[DataType, tuple[int, int]] = {each: each.range for each in INTEGERS}
"""Least and greatest value of each integer type."""
FLOAT32 = Float32Type()
FLOAT64 = Float64Type()
STR = StrType()
BYTES = BytesType()
DATE = DateType()
TIMESTAMP = TimestampType()
TIMESTAMP_NTZ = TimestampNtzType()
INTERVAL = IntervalType()
INTERVALS = tuple(IntervalType(first, last) for first in range(4) for last in range(first, 4))
ANY = AnyType()


def with_article(data_type: DataType) -> str:
    """Name a type within a sentence: a date, an interval."""
    name = str(data_type)
    return f"{'an' if name[0] in 'aeiou' else 'a'} {name}"


def parts_of(data_type: DataType) -> tuple[DataType, ...]:
    """Return the types of the values within a nested value: fields, elements, or keys and values."""
    match data_type:
        case StructType(fields):
            return tuple(field.type for field in fields)
        case ListType(element):
            return (element,)
        case MapType(key, value):
            return (key, value)
        case _:
            return ()


def holds_any(data_type: DataType) -> bool:
    """Return whether values of a type are arbitrary Python objects or contain them."""
    return isinstance(data_type, AnyType) or any(map(holds_any, parts_of(data_type)))


def holds_intervals(data_type: DataType) -> bool:
    """Return whether values of a type are intervals or contain them."""
    return isinstance(data_type, IntervalType) or any(map(holds_intervals, parts_of(data_type)))


def holds_maps(data_type: DataType) -> bool:
    """Return whether values of a type are maps or contain them."""
    return isinstance(data_type, MapType) or any(map(holds_maps, parts_of(data_type)))
