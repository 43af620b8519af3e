"""Lattices: types whose values only grow when merged.

Merging is associative, commutative and idempotent, so the result does not depend on the order, grouping or
repetition of merged values. `headrace.testing.check_lattice` tests this on examples. The values are plain and
hashable, so that rows can hold them directly.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from headrace.errors import SourceLocation, WrongType
from headrace.expr.types import ANY, AnyType, BoolType, DataType, Field, ListType, StructType


class Lattice(ABC):
    """Base of lattices: a bottom value and a merge that never decreases. Subclass as a frozen dataclass."""

    __slots__ = ()

    @property
    @abstractmethod
    def bottom(self) -> Any:
        """Least value, the identity of `merge`."""

    @abstractmethod
    def merge(self, one: Any, other: Any) -> Any:
        """Return the least upper bound of both values."""

    def leq(self, one: Any, other: Any) -> bool:
        """Return whether `one` is at most `other`, so that merging `one` into `other` changes nothing."""
        return bool(self.merge(one, other) == other)

    def value(self, item: Any) -> Any:
        """Convert an item of a stream to a value of the lattice. Default: the item itself."""
        return item

    def absorb(self, value: Any, item: Any) -> Any:
        """Merge an item into `value`."""
        return self.merge(value, self.value(item))

    def absorb_all(self, value: Any, items: Iterable[Any]) -> Any:
        """Merge several items into `value`."""
        for item in items:
            value = self.merge(value, self.value(item))
        return value

    @property
    def parts(self) -> tuple[Lattice, ...]:
        """Lattices that this one is composed of."""
        return ()

    def column(self, item: Field) -> Field:
        """Return the column of merged values for a column of items. Raises `WrongType` if unsupported."""
        return item if self.bottom is not None else Field(item.name, item.type, True)

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, slots=True)
class _WithoutParameters(Lattice):
    """Base of lattices without parameters. Instances of one class are equal."""


class Max(_WithoutParameters):
    """Greatest value so far; the bottom is None. NaN is greatest."""

    __slots__ = ()

    @property
    def bottom(self) -> Any:
        return None

    def merge(self, one: Any, other: Any) -> Any:
        if one is None:
            return other
        return one if other is None or _at_most(other, one) else other

    def leq(self, one: Any, other: Any) -> bool:
        return one is None or (other is not None and _at_most(one, other))


class Min(_WithoutParameters):
    """Least value so far; the bottom is None. The order is reversed, so NaN is right above the bottom."""

    __slots__ = ()

    @property
    def bottom(self) -> Any:
        return None

    def merge(self, one: Any, other: Any) -> Any:
        if one is None:
            return other
        return one if other is None or _at_most(one, other) else other

    def leq(self, one: Any, other: Any) -> bool:
        return one is None or (other is not None and _at_most(other, one))


def _at_most(one: Any, other: Any) -> bool:
    return bool(one <= other or other != other)


class SetUnion(_WithoutParameters):
    """Union of all members so far, as a `frozenset`. Items are collections of members; null means none."""

    __slots__ = ()

    @property
    def bottom(self) -> frozenset[Any]:
        return frozenset()

    def value(self, item: Any) -> frozenset[Any]:
        return frozenset(() if item is None else item)

    def merge(self, one: frozenset[Any], other: frozenset[Any]) -> frozenset[Any]:
        return one | other

    def leq(self, one: frozenset[Any], other: frozenset[Any]) -> bool:
        return one <= other

    def absorb_all(self, value: frozenset[Any], items: Iterable[Any]) -> frozenset[Any]:
        return value.union(*[item for item in items if item is not None])

    def column(self, item: Field) -> Field:
        return _any_of(self, item, ListType)


@dataclass(frozen=True, slots=True)
class MapUnion(Lattice):
    """Map that merges the values of each key in the lattice `inner`.

    A value is the `frozenset` of the map's pairs, because rows hold only immutable values; `dict(value)` is
    the map. An item is a mapping, any collection of pairs, or null for none. A key whose value is the bottom
    of `inner` counts as missing.
    """

    inner: Lattice

    @property
    def parts(self) -> tuple[Lattice, ...]:
        return (self.inner,)

    @property
    def bottom(self) -> frozenset[Any]:
        return frozenset()

    def value(self, item: Any) -> frozenset[Any]:
        return self.absorb_all(frozenset(), [item])

    def merge(self, one: frozenset[Any], other: frozenset[Any]) -> frozenset[Any]:
        return self.absorb_all(one, [other])

    def leq(self, one: frozenset[Any], other: frozenset[Any]) -> bool:
        have = dict(other)
        return all(self.inner.leq(value, have.get(key, self.inner.bottom)) for key, value in one)

    def absorb_all(self, value: frozenset[Any], items: Iterable[Any]) -> frozenset[Any]:
        merged = dict(value)
        bottom = self.inner.bottom
        for item in items:
            if item is None:
                continue
            pairs = cast("Mapping[Any, Any]", item).items() if isinstance(item, Mapping) else item
            for key, given in pairs:
                merged[key] = self.inner.absorb(merged.get(key, bottom), given)
        return frozenset((key, kept) for key, kept in merged.items() if kept != bottom)

    def column(self, item: Field) -> Field:
        return _any_of(self, item, ListType)

    def __str__(self) -> str:
        return f"MapUnion({self.inner})"


class BoolOr(_WithoutParameters):
    """Disjunction of all values so far."""

    __slots__ = ()

    @property
    def bottom(self) -> bool:
        return False

    def value(self, item: Any) -> bool:
        return bool(item)

    def merge(self, one: bool, other: bool) -> bool:
        return one or other

    def column(self, item: Field) -> Field:
        if not isinstance(item.type, BoolType | AnyType):
            raise _does_not_fit(self, item, "an item is true or false", "compare it with something first")
        return Field(item.name, item.type, item.nullable and isinstance(item.type, AnyType))


@dataclass(frozen=True, slots=True)
class Pair(Lattice):
    """Product of two lattices, with 2-tuples as values. Null is the bottom of both."""

    first: Lattice
    second: Lattice

    @property
    def parts(self) -> tuple[Lattice, ...]:
        return (self.first, self.second)

    @property
    def bottom(self) -> tuple[Any, Any]:
        return (self.first.bottom, self.second.bottom)

    def value(self, item: Any) -> tuple[Any, Any]:
        if item is None:
            return self.bottom
        one, other = item
        return (self.first.value(one), self.second.value(other))

    def merge(self, one: tuple[Any, Any], other: tuple[Any, Any]) -> tuple[Any, Any]:
        return (self.first.merge(one[0], other[0]), self.second.merge(one[1], other[1]))

    def leq(self, one: tuple[Any, Any], other: tuple[Any, Any]) -> bool:
        return self.first.leq(one[0], other[0]) and self.second.leq(one[1], other[1])

    def column(self, item: Field) -> Field:
        if isinstance(item.type, StructType) and len(item.type.fields) == 2:
            return Field(item.name, ANY)
        return _any_of(self, item, ListType)

    def __str__(self) -> str:
        return f"Pair({self.first}, {self.second})"


@dataclass(frozen=True, slots=True)
class Merging(Lattice):
    """Lattice defined by a bottom and a merge function. `check_lattice` tests its laws.

    The order is that of the merge: one value is at most another if merging it into the other changes nothing.
    A bottom of None is never passed to the function.
    """

    least: Any
    function: Callable[[Any, Any], Any]

    @property
    def bottom(self) -> Any:
        return self.least

    def merge(self, one: Any, other: Any) -> Any:
        if self.least is None and (one is None or other is None):
            return other if one is None else one
        return self.function(one, other)

    def __str__(self) -> str:
        return getattr(self.function, "__name__", "Merging")


def _any_of(lattice: Lattice, item: Field, *also: type[DataType]) -> Field:
    if not isinstance(item.type, (AnyType, *also)):
        raise _does_not_fit(
            lattice,
            item,
            "an item is a collection",
            "map() each row to one: frozenset([row]), returns=object",
        )
    return Field(item.name, ANY, True)


def _does_not_fit(lattice: Lattice, item: Field, why: str, fix: str) -> WrongType:
    return WrongType(
        f"{lattice} cannot merge {item.name!r}, which is {item.type}",
        where=[SourceLocation.of_caller()],
        why=f"In this lattice {why}.",
        fix=fix,
        column=item.name,
    )
