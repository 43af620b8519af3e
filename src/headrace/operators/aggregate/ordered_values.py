"""Ordered multiset of a group: its present values in order, with the copies of each."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from heapq import nlargest, nsmallest
from itertools import chain
from math import isqrt
from typing import TYPE_CHECKING, Any

from headrace.operators.aggregate.extremes import Extreme

if TYPE_CHECKING:
    from headrace.operators.aggregate.accumulator import ArgumentTypes, Target

Values = list[Any]
Copies = dict[Any, int]
OrderKey = Callable[[Any], Any] | None


def add_ordered_value(group: list[Any], at: int, value: Any, weight: int) -> None:
    """Add `weight` copies of `value` to [values in order, counts, moved] at `group[at:]`.

    The values are brought up to date by `settle` or `settle_end`, once per tick. `moved` has the copies that
    there were, of each value that may have come or gone.
    """
    counts, moved = group[at + 1], group[at + 2]
    before = counts.get(value, 0)
    if value not in moved:
        moved[value] = before
    after = before + weight
    if after:
        counts[value] = after
    elif before:
        del counts[value]


# From so many moved values on, and this part of all, one sort is cheaper than a place for each.
_MANY, _PART = 16, 16


def settle(group: list[Any], at: int, order_key: OrderKey) -> None:
    """Bring the values at `group[at]`, all that are present, up to date with the counts."""
    values, counts, moved = group[at : at + 3]
    come, gone = _come_and_gone(counts, moved)
    _move(values, counts, come, gone, order_key)
    moved.clear()


def settle_end(group: list[Any], at: int, order_key: OrderKey, least: int, end: int) -> None:
    """Bring the values at `group[at]`, those at one end of the order, up to date with the counts.

    They are `least` at least, or all that are present. end: 0 for the first values, -1 for the last.

    More are kept than asked for, so that all others are searched only once these are used up: a change costs
    the square root of their number on average, and most changes only their count.
    """
    values, counts, moved = group[at : at + 3]
    come, gone = _come_and_gone(counts, moved)
    before = len(counts) - sum((counts.get(v, 0) != 0) - (n != 0) for v, n in moved.items())
    if before != len(values):
        come, gone = (_at_end(values, each, order_key, end) for each in (come, gone))
    kept = least + _KEPT + 4 * isqrt(len(counts))
    if len(values) + len(come) > 2 * kept:
        present = (v for v in chain(values, come) if counts.get(v, 0) > 0)
        values[:] = _ends(present, kept, order_key, end)
    else:
        _move(values, counts, come, gone, order_key)
    if len(values) < least and len(values) < len(counts):
        values[:] = _ends((v for v, n in counts.items() if n > 0), kept, order_key, end)
    moved.clear()


def ends_of(counts: Copies, order_key: OrderKey, end: int) -> Values:
    """Return the values that `settle_end` keeps of these counts."""
    return _ends((v for v, n in counts.items() if n > 0), _KEPT + 4 * isqrt(len(counts)), order_key, end)


_KEPT = 256
"""Values that are kept in order, however few there are."""


def _come_and_gone(counts: Copies, moved: Copies) -> tuple[Values, Values]:
    """Return the values that are present now and were not, and those that were."""
    come: Values = []
    gone: Values = []
    for value, before in moved.items():
        present = counts.get(value, 0) > 0
        if present != (before > 0):
            (come if present else gone).append(value)
    return come, gone


def _at_end(values: Values, some: Values, order_key: OrderKey, end: int) -> Values:
    """Return which of some values stand within the order of `values`, which are those at an end."""
    if not values:
        return []
    key = order_key or _same
    limit = key(values[-1 - end])
    return [v for v in some if (key(v) >= limit if end else key(v) <= limit)]


def _ends(values: Iterable[Any], count: int, order_key: OrderKey, end: int) -> Values:
    """Return the first or last values, in order."""
    return nlargest(count, values, order_key)[::-1] if end else nsmallest(count, values, order_key)


def _move(values: Values, counts: Copies, come: Values, gone: Values, order_key: OrderKey) -> None:
    """Put values into an ordered list, and take others out."""
    moved = len(come) + len(gone)
    if moved > _MANY and moved * _PART > len(values):
        # What stays is a sorted run, which the sort takes as a whole.
        values[:] = [v for v in values if counts.get(v, 0) > 0]
        values += come
        values.sort(key=order_key)
        return
    for value in come:
        values.insert(_place(values, value, order_key), value)
    for value in gone:
        del values[_place(values, value, order_key)]


def _place(values: Values, value: Any, order_key: OrderKey) -> int:
    return bisect_left(values, value if order_key is None else order_key(value), key=order_key)


def _same(value: Any) -> Any:
    return value


RUNTIME: dict[str, Any] = {
    "x_add_ordered_value": add_ordered_value,
    "x_settle": settle,
    "x_settle_end": settle_end,
}


# --- accumulator -------------------------------------------------------------------------------------


class SortedValues(Extreme):
    """Function of an ordered multiset: [sorted present values, copies per value, values of this tick].

    Null if it is empty.
    """

    def __init__(self, types: ArgumentTypes, append: bool, function: str, *settings: object) -> None:
        super().__init__(types, append, 0)
        self.function = function
        self.settings = settings

    def settle(self, to: Target) -> None:
        to.code.line(f"x_settle({to.group}, {to.at}, {self.order(to)})")

    def result(self, to: Target) -> str:
        settings = (to.writer.constant("setting", setting) for setting in self.settings)
        arguments = ", ".join((to.field(0), to.field(1), *settings))
        return f"({self.function}({arguments}) if {to.field(0)} else None)"
