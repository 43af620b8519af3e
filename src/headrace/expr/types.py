"""Column and row types, and their conversion from Python annotations."""

from __future__ import annotations

import dataclasses
import re
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, ClassVar, TypeAlias, cast

from headrace.errors import SourceLocation, UnknownRowType
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
    """Base of the column types of signed `int` values of `bits` bits. Overflow is an error."""

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
    """Column type of `float` values of 32 bits, Spark's FLOAT. Results are rounded to 32 bits, as in Java."""

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
    """Column type of `datetime.datetime` values without a zone, to the microsecond: wall-clock time."""

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
        """Microseconds of the smallest unit, of which all values are multiples; 1 for seconds."""
        return 1 if self.last == 3 else INTERVAL_UNITS[self.last]


def fits_interval(span: timedelta) -> bool:
    """Return whether a span in microseconds fits 64 bits."""
    # Of a plain number, since pandas has spans of its own.
    return -(2**63) <= span // timedelta(microseconds=1) < 2**63


class AnyType(DataType):
    """Column type of any hashable Python values, passed through unchanged (annotated `object` or `Any`).

    Expressions may pass it on, compare it for equality and test it for null, but nothing else. Where rows
    need an order (`max`, ties of `top_k`), values are ordered by `headrace.expr.value_keys.any_key`. It is
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
    """Column type of mappings: tuples of (key, value) pairs internally, `dict`s for users.

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
        """Type of the list of entries. Values are nullable as in the map."""
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


Int8: TypeAlias = Annotated[int, Int8Type()]
Int16: TypeAlias = Annotated[int, Int16Type()]
Int32: TypeAlias = Annotated[int, Int32Type()]
Float32: TypeAlias = Annotated[float, Float32Type()]
TimestampNtz: TypeAlias = Annotated[datetime, TimestampNtzType()]

_PLAIN: dict[object, DataType] = {
    bool: BOOL,
    int: INT64,
    float: FLOAT64,
    Decimal: DecimalType(),
    str: STR,
    bytes: BYTES,
    date: DATE,
    datetime: TIMESTAMP,
    timedelta: INTERVAL,
    object: ANY,
    Any: ANY,
}
_NAMES: dict[str, DataType] = {
    "bool": BOOL,
    "int": INT64,
    **{str(each): each for each in INTEGERS},
    "float": FLOAT64,
    "float32": FLOAT32,
    "float64": FLOAT64,
    "str": STR,
    "bytes": BYTES,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
    "interval": INTERVAL,
    **{str(each): each for each in INTERVALS},
    "any": ANY,
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,9})\s*,\s*(\d{1,9})\s*\)")
_MAX_PRECISION = 38


def as_type(wanted: Any) -> DataType:
    """Convert an annotation, a `DataType` or a name ("int32", "decimal(12,2)") to a type.

    Raises `UnknownRowType` for anything else.
    """
    if isinstance(wanted, DataType):
        return _valid(wanted)
    if isinstance(wanted, str):
        decimal = _DECIMAL.fullmatch(wanted)
        if decimal is not None:
            return _valid(DecimalType(int(decimal[1]), int(decimal[2])))
        if wanted in _NAMES:
            return _NAMES[wanted]
        raise _unknown(f"unknown type {wanted!r}", "")
    return as_field("", wanted).type


def _valid(wanted: DataType) -> DataType:
    if isinstance(wanted, DecimalType) and not (
        1 <= wanted.precision <= _MAX_PRECISION and 0 <= wanted.scale <= wanted.precision
    ):
        raise UnknownRowType(
            f"{wanted} is not a decimal type",
            where=[SourceLocation.of_caller()],
            why="the precision is 1 to 38 digits, and the scale at most that.",
        )
    return wanted


def as_field(name: str, annotation: Any) -> Field:
    """Convert an annotation to a column. Raises `UnknownRowType`."""
    nullable = False
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        options = typing.get_args(annotation)
        rest = [o for o in options if o is not types.NoneType]
        if len(rest) != 1 or len(rest) == len(options):
            raise _unknown(f"a column cannot be one of several types: {annotation}", name)
        nullable, annotation = True, rest[0]
    if typing.get_origin(annotation) is Annotated:
        base, *marks = typing.get_args(annotation)
        declared = next((_valid(m) for m in marks if isinstance(m, DataType)), None)
        if declared is not None:
            return Field(name, declared, nullable)
        inner = as_field(name, base)
        return Field(name, inner.type, nullable or inner.nullable)
    type = _type_of(name, annotation)
    # None is an object, too.
    return Field(name, type, nullable or isinstance(type, AnyType))


def _type_of(name: str, annotation: Any) -> DataType:
    try:
        plain = _PLAIN.get(annotation)
    except TypeError:
        plain = None
    if plain is not None:
        return plain
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is list or origin is Sequence or (origin is tuple and arguments[1:] == (...,)):
        element = as_field(name, arguments[0])
        return ListType(element.type, element.nullable)
    if origin is dict or origin is Mapping:
        return _map_type(name, annotation, *arguments)
    if is_row_class(annotation):
        return StructType(fields_of(annotation), annotation)
    raise _unknown(f"{getattr(annotation, '__name__', annotation)} is not a column type", name)


def _map_type(name: str, annotation: Any, key: Any, value: Any) -> MapType:
    keys, values = as_field(name, key), as_field(name, value)
    if keys.nullable or holds_maps(keys.type) or holds_any(keys.type) or _is_unhashable(key):
        raise _unknown(f"the keys of {annotation} cannot be {key}", name)
    if holds_any(values.type):
        raise _unknown(f"the values of {annotation} are of any type", name)
    return MapType(keys.type, values.type, values.nullable)


def _is_unhashable(key: Any) -> bool:
    return (typing.get_origin(key) or key) is list or getattr(key, "__hash__", None) is None


def is_row_class(annotation: Any) -> bool:
    """Return whether a value is a `NamedTuple` class or a dataclass."""
    if not isinstance(annotation, type):
        return False
    return dataclasses.is_dataclass(annotation) or (
        issubclass(annotation, tuple) and hasattr(cast("Any", annotation), "_fields")
    )


def fields_of(row_class: type) -> tuple[Field, ...]:
    """Return the columns of a `NamedTuple` or dataclass. Raises `UnknownRowType`."""
    try:
        hints = typing.get_type_hints(row_class, include_extras=True)
    except (NameError, TypeError) as error:
        raise UnknownRowType(
            f"the annotations of {row_class.__name__} cannot be read: {error}",
            where=[SourceLocation.of_caller()],
            why="with `from __future__ import annotations` a name must be known in the module.",
            fix="define the row classes at module level",
        ) from error
    if dataclasses.is_dataclass(row_class):
        names = tuple(f.name for f in dataclasses.fields(row_class))
    else:
        names = cast("tuple[str, ...]", cast("Any", row_class)._fields)
    missing = [n for n in names if n not in hints]
    called = cast("Any", row_class).__name__
    if missing or not names:
        raise UnknownRowType(
            f"{called} has no type for {missing[0]!r}" if missing else f"{called} is empty",
            where=[SourceLocation.of_caller()],
            fix="write a NamedTuple or a dataclass with an annotation for each field",
        )
    return tuple(as_field(n, hints[n]) for n in names)


def _unknown(what: str, name: str) -> UnknownRowType:
    return UnknownRowType(
        f"{what} (column {name!r})" if name else what,
        where=[SourceLocation.of_caller()],
        why="Columns are bool, int, Int8, Int16, Int32, float, Float32, Decimal, str, bytes, date,\n"
        "datetime, TimestampNtz, timedelta, lists of these, maps (dict[str, int]),\n"
        "and nested NamedTuples or dataclasses.",
        fix="for a null write `T | None`; for digits `Annotated[Decimal, DecimalType(12, 2)]`",
    )
