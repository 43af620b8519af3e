"""Ledger of lent values: the borrower of each value, and the order of results."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Hashable
from typing import Any


class Ledger:
    """Ledger of values read, lent and answered. A failed borrower's values are lent again.

    Invariant: `read - answered == lent + pending`, and results are returned in the order of the values.
    `check` verifies it.
    """

    def __init__(self) -> None:
        self.read = 0
        self.answered = 0
        self.given = 0
        self._pending: list[tuple[int, Any]] = []
        self._lent: dict[Hashable, deque[tuple[int, Any]]] = {}
        self._results: dict[int, Any] = {}

    @property
    def pending(self) -> int:
        """Number of values lent to nobody."""
        return len(self._pending)

    @property
    def lent(self) -> int:
        """Number of values that borrowers have not answered."""
        return sum(map(len, self._lent.values()))

    @property
    def all_answered(self) -> bool:
        return self.answered == self.read

    @property
    def ready(self) -> bool:
        """Whether the next result in order is available."""
        return self.given in self._results

    def add(self, value: Any) -> None:
        """Record a value read from upstream."""
        heapq.heappush(self._pending, (self.read, value))
        self.read += 1

    def lend(self, borrower: Hashable) -> Any:
        """Lend the oldest pending value. Requires one."""
        number, value = heapq.heappop(self._pending)
        self._lent.setdefault(borrower, deque()).append((number, value))
        return value

    def owes(self, borrower: Hashable) -> bool:
        """Whether a borrower has unanswered values."""
        return bool(self._lent.get(borrower))

    def answer(self, borrower: Hashable, result: Any) -> None:
        """Record the result of the borrower's oldest value. Requires `owes`."""
        number, _ = self._lent[borrower].popleft()
        self._results[number] = result
        self.answered += 1

    def take_back(self, borrower: Hashable) -> None:
        """Mark a borrower's unanswered values as pending again."""
        for numbered in self._lent.pop(borrower, ()):
            heapq.heappush(self._pending, numbered)

    def give(self) -> Any:
        """Return the next result in order. Requires `ready`."""
        self.given += 1
        return self._results.pop(self.given - 1)

    def check(self) -> None:
        assert self.read - self.answered == self.lent + self.pending
        assert self.given + len(self._results) == self.answered
        held = [number for values in (self._pending, *self._lent.values()) for number, _ in values]
        numbers = sorted([*held, *self._results])
        assert numbers == sorted(set(numbers)), "a value is in two places"
        assert all(self.given <= number < self.read for number in numbers)
