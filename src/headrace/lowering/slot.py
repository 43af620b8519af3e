"""Slots: named mappings that hold an operator's state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

Thaw = Callable[[Any], Any]
Divides = Literal["nothing", "value", "fields"]


def as_it_is(value: Any) -> Any:
    """Thaw function for values that are never mutated in place, or stored in their mutable form."""
    return value


def thaw_list(value: Any) -> list[Any]:
    """Thaw function for a flat list."""
    return list(value)


def thaw_dict(value: Any) -> dict[Any, Any]:
    """Thaw function for a flat dict."""
    return dict(value)


@dataclass(frozen=True, slots=True)
class Slot:
    """Named mapping from keys to values in an operator's state.

    name: "<node id>.<what>", stable for a given flow.
    thaw: makes the mutable form of a stored value, if a store returns tuples for lists.
    divides: what of a value a store may divide into chunks, so that a large one is not read and
          written whole: "value", a dict or a list of rows; "fields", those of a list's fields that
          are dicts or lists. Then it need not be a plain dict or list, but behaves like one.
    transient: it is emptied when the tick ends, and so belongs to no state: it is always a dict,
          and may be iterated.
    """

    name: str
    thaw: Thaw = as_it_is
    divides: Divides = "nothing"
    transient: bool = False


class SlotMapping(Protocol):
    """Interface of a slot for generated code: a dict, or a mapping that loads entries on demand.

    `get` gives None if there is nothing; a value that was got may be
    mutated in place. Nothing iterates a slot.
    """

    def get(self, key: Any, /) -> Any: ...
    def __setitem__(self, key: Any, value: Any, /) -> None: ...
    def __delitem__(self, key: Any, /) -> None: ...
