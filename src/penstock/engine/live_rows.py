"""Rows of a sink as they stand, with the changes since they were last shown: the data of a live table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

Row = tuple[Any, ...]


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
        self._copies: dict[Row, int] = {}  # the latest changed comes last
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
            before = self._copies.pop(row, 0)
            if after := before + weight:
                self._copies[row] = after
            self.count += max(after, 0) - max(before, 0)
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
        shown = {row: max(self._copies.get(row, 0), 0) for row in islice(_gone(changed), self.limit)}
        present = (row for row in reversed(self._copies) if self._copies[row] > 0)
        shown.update((row, self._copies[row]) for row in islice(present, self.limit))
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
