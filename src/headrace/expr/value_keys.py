"""Keys of values: for sorting in the order of Spark, and for dicts that group as Spark does.

Nulls sort first ascending and last descending, NaN is greatest, and -0.0 equals 0.0. Values grouped together
by Spark are one key of a dict.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial, singledispatch
from operator import neg, not_
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import EvaluationError
from headrace.expr.code_runtime import NAN
from headrace.expr.types import (
    AnyType,
    BoolType,
    DataType,
    DateType,
    DecimalType,
    FloatingType,
    IntegerType,
    IntervalType,
    ListType,
    MapType,
    Schema,
    StructType,
    TimestampNtzType,
    TimestampType,
    holds_maps,
    parts_of,
)

Key = Callable[[Any], Any]


class Descending:
    """Wrapper that reverses the order of a comparable value, used if no plain value can."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Descending) -> bool:
        return other.value < self.value

    def __le__(self, other: Descending) -> bool:
        return other.value <= self.value

    def __gt__(self, other: Descending) -> bool:
        return other.value > self.value

    def __ge__(self, other: Descending) -> bool:
        return other.value >= self.value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def order_key(type: DataType, nullable: bool, descending: bool = False) -> Key | None:
    """Return a function from values to keys that Python sorts in Spark's order.

    None if the values need no key.
    """
    if nullable and isinstance(type, IntegerType):
        # Numbers are compared several times faster than tuples are.
        return _int_or_last if descending else _int_or_first
    key = _reversed(type) if descending else _key(type)
    if not nullable:
        return key
    if key is None:
        return lambda value: (False,) if value is None else (True, value)
    return lambda value: (descending,) if value is None else (not descending, key(value))


_BEFORE_ALL = -(2**63) - 1


def _int_or_first(value: int | None) -> int:
    return _BEFORE_ALL if value is None else value


def _int_or_last(value: int | None) -> int:
    return -_BEFORE_ALL if value is None else -value


@singledispatch
def _reversed(type: DataType) -> Key:
    key = _key(type)
    return Descending if key is None else lambda value: Descending(key(value))


@_reversed.register(IntegerType)
def _(type: IntegerType) -> Key:
    return neg


@_reversed.register(BoolType)
def _(type: BoolType) -> Key:
    return not_


@_reversed.register(FloatingType)
def _(type: FloatingType) -> Key:
    return lambda value: (True, -value) if value == value else (False, 0.0)


@_reversed.register(DecimalType)
def _(type: DecimalType) -> Key:
    return Decimal.copy_negate  # `-value` would round it.


@_reversed.register(DateType)
def _(type: DateType) -> Key:
    return lambda value: date.max - value


@_reversed.register(TimestampType)
def _(type: TimestampType) -> Key:
    return lambda value: _LAST_MOMENT - value


@_reversed.register(IntervalType)
def _(type: IntervalType) -> Key:
    return neg


@_reversed.register(TimestampNtzType)
def _(type: TimestampNtzType) -> Key:
    return lambda value: datetime.max - value


_LAST_MOMENT = datetime.max.replace(tzinfo=UTC)


@singledispatch
def _key(type: DataType) -> Key | None:
    return None


@_key.register(FloatingType)
def _float(type: FloatingType) -> Key | None:
    return _float_key


def _float_key(value: float) -> tuple[bool, float]:
    return (False, value) if value == value else (True, 0.0)


@_key.register(StructType)
def _struct(type: StructType) -> Key | None:
    keys = [order_key(f.type, f.nullable) for f in type.fields]
    if not any(keys):
        return None
    return lambda row: tuple(v if k is None else k(v) for k, v in zip(keys, row, strict=True))


@_key.register(ListType)
def _list(type: ListType) -> Key | None:
    key = order_key(type.element, type.nullable)
    return None if key is None else lambda values: tuple(map(key, values))


@_key.register(MapType)
def _map(type: MapType) -> Key | None:
    key = order_key(type.entries.element, False)
    return lambda entries: tuple(sorted(entries if key is None else map(key, entries)))


@_key.register(AnyType)
def _any(type: AnyType) -> Key | None:
    return any_key


def any_key(value: Any) -> tuple[Any, ...]:
    """Return a sort key for values of any type, equal for equal values.

    The order is: None, numbers (NaN greatest), text, bytes, tuples by element, sets by their sorted members,
    then all others by the name of their class and that class's own comparison.
    """
    if value is None:
        return (0,)
    if isinstance(value, int | float | Decimal):
        return (1, *((False, value) if value == value else (True, 0)))
    if isinstance(value, str):
        return (2, value)
    if isinstance(value, bytes):
        return (3, value)
    if isinstance(value, tuple):
        return (4, tuple(map(any_key, value)))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if isinstance(value, frozenset):
        return (5, tuple(sorted(map(any_key, value))))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return (6, f"{type(value).__module__}.{type(value).__qualname__}", _Comparable(value))


class _Comparable:
    """Wrapper that compares values of a user's class. Raises `EvaluationError` if the comparison fails."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Comparable) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)

    def __lt__(self, other: _Comparable) -> bool:
        try:
            return bool(self.value < other.value)
        except TypeError:
            raise EvaluationError(
                f"values of {type(self.value).__name__} have no order",
                fix="give the class an order (__lt__), or order by another column",
            ) from None

    def __gt__(self, other: _Comparable) -> bool:
        return other < self


if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    Name = Callable[[str], tuple[str, str]]


def dict_key_source(type: DataType, nullable: bool, source: str, name: Name) -> str:
    """Return the source of the dict key for `source`. `name` binds a value that is used more than once."""
    return _dict_key_of_type(type, nullable, source, name)


@singledispatch
def _dict_key_of_type(type: DataType, nullable: bool, source: str, name: Name) -> str:
    return source


@_dict_key_of_type.register(FloatingType)
def _float_dict_key(type: FloatingType, nullable: bool, source: str, name: Name) -> str:
    # Canonical NaN is truthy and stays the same; both zeros are falsy.
    if not nullable:
        return f"({source} or 0.0)"
    first, again = name(source)
    return f"({again} if {first} or {again} is None else 0.0)"


@_dict_key_of_type.register(AnyType)
def _any_dict_key(type: AnyType, nullable: bool, source: str, name: Name) -> str:
    return f"x_key({source})"


@_dict_key_of_type.register(StructType)
@_dict_key_of_type.register(ListType)
@_dict_key_of_type.register(MapType)
def _nested(type: DataType, nullable: bool, source: str, name: Name) -> str:
    if holds_maps(type):
        return f"x_key_with_maps({source}, {_shape(type)!r})"
    return f"x_key({source})" if has_representatives(type) else source


def has_representatives(type: DataType) -> bool:
    """Return whether distinct values of a type may be equal, so that one represents the others.

    These are zeros, maps with their entries in another order, and values that contain them, as far as the
    type determines it.
    """
    return isinstance(type, FloatingType | MapType) or any(map(has_representatives, parts_of(type)))


def key_function(type: DataType) -> Callable[[Any], Any]:
    """Return a function from values to keys, with one representative for all equal values."""
    shape = _shape(type)
    return nested_key if shape is None else partial(key_with_maps, shape=shape)


def nested_key(value: object) -> object:
    """Convert a nested value to a key: floats at any depth canonical, -0.0 as 0.0. None is unchanged."""
    if type(value) is float:
        return (value or 0.0) if value == value else NAN
    if type(value) is tuple:
        return tuple(map(nested_key, value))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return value


MapPlaces: TypeAlias = "tuple[Any, ...] | None"
"""Places of the maps in a value: a kind and the shapes of its parts, or None without maps."""


def _shape(type: DataType) -> MapPlaces:
    if not holds_maps(type):
        return None
    if isinstance(type, MapType):
        return ("map", _shape(type.value))
    return ("list" if isinstance(type, ListType) else "struct", *map(_shape, parts_of(type)))


def key_with_maps(value: Any, shape: MapPlaces) -> Any:
    """Convert a nested value to a key, as `nested_key` does, with the entries of maps sorted by key."""
    if value is None or shape is None:
        return nested_key(value)
    if shape[0] == "struct":
        return tuple(map(key_with_maps, value, shape[1:]))
    if shape[0] == "list":
        return tuple(key_with_maps(each, shape[1]) for each in value)
    return sorted_entries((nested_key(key), key_with_maps(each, shape[1])) for key, each in value)


def sorted_entries(entries: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...]:
    """Return the entries of a map, sorted by key."""
    return tuple(sorted(entries, key=lambda entry: any_key(entry[0])))


def distinct_entries(entries: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, Any], ...] | None:
    """Return entries with keys as `nested_key` makes them, or None if two keys are equal."""
    listed = [(nested_key(key), value) for key, value in entries]
    made = dict(listed)
    return tuple(made.items()) if len(made) == len(listed) else None


def with_representatives(rows: Sequence[tuple[Any, ...]], schema: Schema) -> Sequence[tuple[Any, ...]]:
    """Replace values in rows that are counted by equality: -0.0 with 0.0, and maps with sorted ones.

    A weight after the columns is kept. Returns rows without floats and maps unchanged.
    """
    columns = [
        (at, key_function(f.type))
        for at, f in enumerate(schema.fields)
        if isinstance(f.type, AnyType) or has_representatives(f.type)
    ]
    if not columns:
        return rows
    made: list[tuple[Any, ...]] = []
    for row in rows:
        values = list(row)
        for at, key in columns:
            values[at] = key(values[at])
        made.append(tuple(values))
    return made


NAMES: dict[str, Any] = {"x_key": nested_key, "x_key_with_maps": key_with_maps}
