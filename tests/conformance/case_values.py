"""Conversion of case values from JSON to rows, and back for comparison.

JSON arrays stand for tuples. Sets and maps, which JSON lacks, are sorted arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, cast


def from_json(value: Any) -> Any:
    """Convert a JSON value to a row. Raises `ValueError` for an object, whose keys have no meaning."""
    if isinstance(value, list):
        return tuple(from_json(item) for item in cast("list[Any]", value))
    if isinstance(value, dict):
        raise ValueError(f"an object cannot be a row, write a sorted array of pairs: {value!r}")
    return value


def frozen(value: Any) -> Any:
    """Convert a function's result to a row: hashable and comparable."""
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
    """List carried by a function, as a row."""

    __slots__ = ()


class FrozenMap(tuple[Any, ...]):
    """Dict carried by a function, as a row of sorted pairs."""

    __slots__ = ()


class CarriedSet(frozenset[Any]):
    """Set carried by a function, as a row."""

    __slots__ = ()


def encode_carried(value: Any) -> Any:
    """Convert a value that a function carries from row to row, marking lists, dicts and sets."""
    if isinstance(value, Mapping):
        pairs = cast("Mapping[Any, Any]", value).items()
        return FrozenMap(_sorted([(encode_carried(k), encode_carried(v)) for k, v in pairs]))
    if isinstance(value, list | tuple):
        items = [encode_carried(item) for item in cast("Sequence[Any]", value)]
        return FrozenList(items) if isinstance(value, list) else tuple(items)
    if isinstance(value, set):
        return CarriedSet(frozen(value))
    return value


def decode_carried(value: Any) -> Any:
    """Reverse `encode_carried` for a function, with its own copy of lists, dicts and sets."""
    if isinstance(value, FrozenMap):
        return {key: decode_carried(item) for key, item in value}
    if isinstance(value, tuple):
        items = [decode_carried(item) for item in cast("Sequence[Any]", value)]
        return items if isinstance(value, FrozenList) else tuple(items)
    return set(cast("Set[Any]", value)) if isinstance(value, CarriedSet) else value


def comparable(value: Any) -> Any:
    """Convert a row to the form used in cases: sets as sorted tuples, `True` distinct from 1."""
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
    """Value equal only to itself, since in Python `True == 1` and NaN differs from NaN."""

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
    except TypeError:  # for mixed types, any stable order will do
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
"""Normalizations applied to both sides before a tick's outputs are compared."""


def differences(order: str, expected: Sequence[Any], found: Sequence[Any]) -> bool:
    """Describe how the rows of a tick differ from the expected ones."""
    view = ORDERS[order]
    return view([comparable(v) for v in expected]) != view([comparable(v) for v in found])
