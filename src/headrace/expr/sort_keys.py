"""Sort keys for Spark's order: nulls first ascending and last descending, NaN greatest, -0.0 = 0.0."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import singledispatch
from operator import neg, not_
from typing import Any

from headrace.errors import EvaluationError
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
    StructType,
    TimestampNtzType,
    TimestampType,
)

Key = Callable[[Any], Any]


class Descending:
    """Wrapper that reverses the order of a comparable value, where no other value stands for that."""

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
    """Wrapper that compares values of a user's class. Raises `EvaluationError` if that fails."""

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
