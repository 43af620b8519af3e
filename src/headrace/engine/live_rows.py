"""Rows of a sink as they stand, with the changes since they were last shown: the data of a live table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from headrace.expr.types import Row, Schema
from headrace.expr.typing_rules import is_number


@dataclass(slots=True)
class Occurrence:
    """Multiplicity of a row, and the last tick that changed it. json: the row as JSON, once it was needed."""

    weight: int
    tick: int
    json: str = ""


class CurrentRows:
    """Multiset of rows, maintained from changes.

    rows: those of nonzero weight, the last changed come last.
    """

    def __init__(self) -> None:
        self.rows: dict[Row, Occurrence] = {}

    def change(self, row: Row, weight: int, tick: int) -> int:
        """Add to a row's weight; return the weight before."""
        there = self.rows.pop(row, None)
        if there is None:
            there = Occurrence(0, tick)
        before = there.weight
        there.weight += weight
        if there.weight:
            there.tick = tick
            self.rows[row] = there
        return before


@dataclass(frozen=True, slots=True)
class LiveRow:
    """Row of a live table. change: 1 if it is new or has more copies, -1 if it is gone or has fewer, or 0.

    copies: how often the row is there now.
    """

    row: Any
    change: int
    copies: int


class LiveRows:
    """Rows of one sink, kept from its changes.

    append:  whether rows are only added. Then only the latest are kept, in the order of arrival.
    present: converts an internal row to the user's.
    limit:   number of rows that are shown.

    A table that is watched only from some tick on lacks the rows that have not changed since.
    """

    def __init__(self, append: bool, present: Callable[[Row], Any], limit: int) -> None:
        self._append = append
        self._present = present
        self.limit = limit
        self.count = 0
        """Number of rows so far, or of rows that are there now, copies included."""
        self._current = CurrentRows()
        self._latest: list[Row] = []
        self._changed: dict[Row, int] = {}
        self._arrived = 0

    def apply(self, rows: Sequence[Row]) -> None:
        """Apply the changes of a tick: internal rows, weight last unless the sink is append-only."""
        if self._append:
            self.count += len(rows)
            self._arrived += len(rows)
            self._latest = [*self._latest, *rows[-self.limit :]][-self.limit :]
            return
        for *values, weight in rows:
            row = tuple(values)
            before = self._current.change(row, weight, 0)
            self.count += max(before + weight, 0) - max(before, 0)
            self._changed[row] = self._changed.get(row, 0) + weight

    def take(self) -> list[LiveRow]:
        """Return the rows to show, at most `limit` of those that are there; the next call has later changes.

        Of a table, the rows that changed last are taken and sorted, with those among them that are gone.
        """
        if self._append:
            old = len(self._latest) - self._arrived
            self._arrived = 0
            return [LiveRow(self._present(row), int(at >= old), 1) for at, row in enumerate(self._latest)]
        changed, self._changed = self._changed, {}
        current = self._current.rows
        present = ((row, current[row].weight) for row in reversed(current) if current[row].weight > 0)
        gone = ((row, max(current[row].weight, 0) if row in current else 0) for row in _gone(changed))
        shown = dict([*islice(gone, self.limit), *islice(present, self.limit)])
        return [LiveRow(self._present(row), _sign(changed.get(row, 0)), shown[row]) for row in _sorted(shown)]


def _gone(changed: dict[Row, int]) -> Iterator[Row]:
    return (row for row in reversed(changed) if changed[row] < 0)


def _sign(weight: int) -> int:
    return (weight > 0) - (weight < 0)


def _sorted(rows: dict[Row, int]) -> list[Row]:
    try:
        return sorted(rows)
    except TypeError:  # values of a column that cannot be compared
        return sorted(rows, key=repr)


def number_columns(schema: Schema) -> list[bool]:
    """Return for each column whether it holds numbers, which tables align by their last digit."""
    return [is_number(field.type) for field in schema.fields]


def shown_json(value: Any) -> str | None:
    """Format a value of JSON as text; JavaScript would round large numbers."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, default=str)
