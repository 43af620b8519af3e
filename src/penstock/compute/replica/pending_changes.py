"""The changes of one time that come in parts: what cancels out over the parts is no change."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.compute.protocol.responses import Counted, Row


class PendingChanges:
    """Changes so far. In each part a row stands once. Adding them up is done as they come, not at the end.

    False where there are none.
    """

    def __init__(self) -> None:
        self._first: Sequence[Counted] = ()
        self._total: dict[Row, int] = {}

    def __bool__(self) -> bool:
        return bool(self._first or self._total)

    def add(self, changes: Sequence[Counted]) -> None:
        """Some more changes."""
        if not self._first and not self._total:
            self._first = changes
            return
        if self._first:
            self._total = dict(self._first)
            self._first = ()
        total = self._total
        for row, weight in changes:
            total[row] = total.get(row, 0) + weight

    def take(self) -> tuple[Sequence[Counted], list[Row]]:
        """All changes together, and the rows that cancelled out. Then there are none."""
        first, total = self._first, self._total
        self.clear()
        if first:
            return first, []
        return [c for c in total.items() if c[1]], [row for row, weight in total.items() if not weight]

    def clear(self) -> None:
        """Forget them."""
        self._first, self._total = (), {}


def add_up(total: dict[Row, int], changes: Sequence[Counted], sign: int = 1) -> None:
    """Add changes to what is there, or take them off; what is there no times is not kept."""
    for row, weight in changes:
        count = total.get(row, 0) + sign * weight
        if count:
            total[row] = count
        else:
            total.pop(row, None)
