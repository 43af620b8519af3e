"""Values of cases: from JSON to what flows carry, and back to what is compared.

JSON arrays stand for tuples. Sets and maps, which JSON has not, stand as sorted arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, cast


def from_json(value: Any) -> Any:
    """A JSON value as a row. Raises `ValueError` for an object: nothing says which key is what."""
    if isinstance(value, list):
        return tuple(from_json(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        raise ValueError(f"an object cannot be a row, write a sorted array of pairs: {value!r}")
    return value


def frozen(value: Any) -> Any:
    """What a function gave, as a row: hashable, and in the form in which rows are compared."""
    if isinstance(value, str | bytes):
        return value
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return _sorted([(frozen(k), frozen(v)) for k, v in pairs])
    if isinstance(value, list | tuple):
        return tuple(frozen(item) for item in cast("Sequence[Any]", value))
    if isinstance(value, set):
        return frozenset(frozen(item) for item in cast("Set[Any]", value))
    return value


class FrozenList(tuple[Any, ...]):
    """A list that a function carries on, as a row."""

    __slots__ = ()


class FrozenMap(tuple[Any, ...]):
    """A dict that a function carries on, as a row: its pairs in order."""

    __slots__ = ()


class FrozenSet(frozenset[Any]):
    """A set that a function carries on, as a row."""

    __slots__ = ()


def carried(value: Any) -> Any:
    """What a function carries on from row to row, as a row: lists, dicts and sets can be told again."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return FrozenMap(_sorted([(carried(k), carried(v)) for k, v in pairs]))
    if isinstance(value, list | tuple):
        items = [carried(item) for item in cast("Sequence[Any]", value)]
        return FrozenList(items) if isinstance(value, list) else tuple(items)
    if isinstance(value, set):
        return FrozenSet(frozen(value))
    return value


def picked_up(value: Any) -> Any:
    """What `carried` was given, as a function gets it again: its own copy of lists, dicts and sets."""
    if isinstance(value, FrozenMap):
        return {key: picked_up(item) for key, item in value}
    if isinstance(value, tuple):
        items = [picked_up(item) for item in cast("Sequence[Any]", value)]
        return items if isinstance(value, FrozenList) else tuple(items)
    return set(cast("Set[Any]", value)) if isinstance(value, FrozenSet) else value


def comparable(value: Any) -> Any:
    """A row in the form in which cases write it: sets as sorted tuples, `True` apart from 1."""
    if isinstance(value, frozenset | set):
        return _sorted([comparable(item) for item in cast("Set[Any]", value)])
    if isinstance(value, Mapping | list | tuple):
        items = frozen(value)
        return tuple(comparable(item) for item in items)
    if isinstance(value, bool):
        return _Truth(value)
    if isinstance(value, float) and math.isnan(value):
        return _Truth("nan")
    return value


class _Truth:
    """A value that equals itself alone: Python holds `True == 1`, and no NaN equals another."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Truth) and self.value is other.value

    def __hash__(self) -> int:
        return hash((_Truth, self.value))

    def __repr__(self) -> str:
        return repr(self.value)


def _sorted(values: list[Any]) -> tuple[Any, ...]:
    try:
        return tuple(sorted(values))
    except TypeError:  # of several types: any order will do that is the same every time
        return tuple(sorted(values, key=lambda value: (type(value).__name__, repr(value))))


def _exact(values: Sequence[Any]) -> Any:
    return list(values)


def _multiset(values: Sequence[Any]) -> Any:
    counts: dict[Any, int] = {}
    for value in values:
        counts[value] = counts.get(value, 0) + 1
    return counts


def _set(values: Sequence[Any]) -> Any:
    return set(values)


ORDERS: Mapping[str, Callable[[Sequence[Any]], Any]] = {"exact": _exact, "multiset": _multiset, "set": _set}
"""How outputs of a tick are compared: what is made of both sides before."""


def differences(order: str, expected: Sequence[Any], found: Sequence[Any]) -> bool:
    """Whether rows of a tick are other than they should be."""
    view = ORDERS[order]
    return view([comparable(v) for v in expected]) != view([comparable(v) for v in found])
