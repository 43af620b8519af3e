"""Partitions of window functions: rows in order with their answers, brought up to date by changes.

A change moves a stretch of a partition's rows. Each function says which rows it may answer differently
afterwards; these are computed again, and those whose answer has changed are told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

Row = tuple[Any, ...]
Rows = list[Row]
Key = Callable[[Any], Any]

# Up to so many changes, functions of near rows take them one by one; more are taken as one stretch.
_ONE_BY_ONE = 16


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows of a partition after a change: those from `low` to `high` are new, in place of others.

    moved:   the partition has more or fewer rows than before.
    changed: the rows that came or went.
    """

    rows: Rows
    low: int
    high: int
    moved: bool
    changed: Rows

    @property
    def size(self) -> int:
        return len(self.rows)


class Function(ABC):
    """Window function over ordered rows. is_local: its answers depend on near rows only."""

    is_local = False

    @abstractmethod
    def affected(self, after: Stretch) -> tuple[int, int]:
        """Return from where to where rows outside of a stretch may be answered differently."""

    @abstractmethod
    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        """Return the answers of rows from `start` to `stop`. before: that of the row before them."""


@dataclass(slots=True)
class Partitions:
    """How the partitions of one operator are kept.

    functions: the operator's. order: sort key of a row, in which rows are unique.

    A partition is [rows in order, a copy each; their answers; {row: copies that it lacks}].
    """

    functions: tuple[Function, ...]
    order: Key

    def update(self, partition: list[Any], changes: Mapping[Row, int]) -> list[tuple[Row, int]]:
        """Apply changes, row by weight; return those of the output, retractions first."""
        rows, answers, lacking = partition
        come: Rows = []
        gone: Rows = []
        for row, weight in changes.items():
            if row in lacking:
                weight += lacking.pop(row)
            (come if weight > 0 else gone).extend([row] * abs(weight))
        told: dict[Row, int] = {}
        singly = len(come) + len(gone) <= _ONE_BY_ONE and all(f.is_local for f in self.functions)
        if singly:
            for row in gone:
                self._replace(rows, answers, lacking, [], [row], told)
            for row in come:
                self._replace(rows, answers, lacking, [row], [], told)
        elif come or gone:
            self._replace(rows, answers, lacking, come, gone, told)
        found = [change for change in told.items() if change[1]]
        found.sort(key=itemgetter(1))
        return found

    def _replace(
        self, rows: Rows, answers: Rows, lacking: dict[Row, int], come: Rows, gone: Rows, told: dict[Row, int]
    ) -> None:
        """Take some rows out of a partition and others in, and add to `told` what that changes."""
        order = self.order
        keys = list(map(order, [*come, *gone]))
        low = bisect_left(rows, min(keys), key=order)
        end = bisect_right(rows, max(keys), lo=low, key=order)
        size, old, old_answers = len(rows), rows[low:end], answers[low:end]
        new = _without(old, gone, order, lacking)
        if len(come) * 8 > len(new):
            new += come
            new.sort(key=order)
        else:
            for row in come:
                insort(new, row, key=order)
        high = low + len(new)
        rows[low:end] = new
        after = Stretch(rows, low, high, len(rows) != size, [*come, *gone])
        spans = [function.affected(after) for function in self.functions]
        start, stop = min(low, *(s for s, _ in spans)), max(high, *(e for _, e in spans))
        kept = (answers[start:low], answers[end : end + stop - high])
        columns: list[list[Any]] = []
        for at, (function, (first, last)) in enumerate(zip(self.functions, spans, strict=True)):
            column = [a[at] for a in kept[0]] + [None] * len(new) + [a[at] for a in kept[1]]
            first, last = min(first, low), max(last, high)
            before = answers[first - 1][at] if first else None
            column[first - start : last - start] = function.answers(rows, first, last, before)
            columns.append(column)
        made = list(zip(*columns, strict=True))
        for row, answer in zip(old, old_answers, strict=True):
            told[row + answer] = told.get(row + answer, 0) - 1
        for row, answer in zip(new, made[low - start : high - start], strict=True):
            told[row + answer] = told.get(row + answer, 0) + 1
        around = ((start, 0), (high, high - start))
        for (first, offset), answered in zip(around, kept, strict=True):
            for at, was in enumerate(answered):
                now = made[offset + at]
                if now != was:
                    row = rows[first + at]
                    told[row + was] = told.get(row + was, 0) - 1
                    told[row + now] = told.get(row + now, 0) + 1
        answers[start : end + stop - high] = made


def _without(rows: Rows, gone: Rows, order: Key, lacking: dict[Row, int]) -> Rows:
    """Return rows in order without a copy of each that is gone; note those that are not there."""
    left = list(rows)
    if len(gone) * 8 > len(rows):
        copies: dict[Row, int] = {}
        for row in gone:
            copies[row] = copies.get(row, 0) + 1
        left.clear()
        for row in rows:
            if copies.get(row):
                copies[row] -= 1
            else:
                left.append(row)
        for row, count in copies.items():
            if count:
                lacking[row] = lacking.get(row, 0) - count
        return left
    for row in gone:
        at = bisect_left(left, order(row), key=order)
        if at < len(left) and left[at] == row:
            del left[at]
        else:
            lacking[row] = lacking.get(row, 0) - 1
    return left


# -- the place of a row -----------------------------------------------------------------------------


@dataclass(slots=True)
class Peers:
    """Rows that the order holds equal. by: what is ordered by, without what tells peers apart."""

    by: Key

    def first(self, rows: Rows, at: int) -> int:
        """Return the place of a row's first peer."""
        return bisect_left(rows, self.by(rows[at]), hi=at, key=self.by)

    def end(self, rows: Rows, at: int) -> int:
        """Return the place after a row's last peer."""
        return bisect_right(rows, self.by(rows[at]), lo=at, key=self.by)

    def around(self, after: Stretch) -> tuple[int, int]:
        """Return a stretch with the peers of the rows next to it."""
        start = self.first(after.rows, after.low - 1) if after.low else 0
        return start, self.end(after.rows, after.high) if after.high < after.size else after.size


@dataclass(slots=True)
class RowNumbers(Function):
    """Places from 1."""

    def affected(self, after: Stretch) -> tuple[int, int]:
        return after.low, after.size if after.moved else after.high

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        return range(start + 1, stop + 1)


@dataclass(slots=True)
class Ranks(Function):
    """Places of the first peer from 1, as part of the others if `relative`."""

    peers: Peers
    relative: bool = False

    def affected(self, after: Stretch) -> tuple[int, int]:
        if after.moved:
            return 0 if self.relative else after.low, after.size
        return after.low, self.peers.around(after)[1]

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        others, at = len(rows) - 1, start
        while at < stop:
            place, end = self.peers.first(rows, at), min(self.peers.end(rows, at), stop)
            answer: Any = (place / others if others else 0.0) if self.relative else place + 1
            yield from [answer] * (end - at)
            at = end


@dataclass(slots=True)
class DenseRanks(Function):
    """Number of the group of peers, from 1."""

    peers: Peers

    def affected(self, after: Stretch) -> tuple[int, int]:
        return after.low, after.size

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        by = self.peers.by
        rank, last = (0, None) if before is None else (before, by(rows[start - 1]))
        for at in range(start, stop):
            key = by(rows[at])
            if rank == 0 or key != last:
                rank, last = rank + 1, key
            yield rank


@dataclass(slots=True)
class CumulativeParts(Function):
    """Part of the rows up to the last peer."""

    peers: Peers

    def affected(self, after: Stretch) -> tuple[int, int]:
        return (0, after.size) if after.moved else self.peers.around(after)

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        at = start
        while at < stop:
            end = self.peers.end(rows, at)
            yield from [end / len(rows)] * (min(end, stop) - at)
            at = end


@dataclass(slots=True)
class Tiles(Function):
    """Numbers of parts of equal size, the first ones larger by one."""

    parts: int

    def affected(self, after: Stretch) -> tuple[int, int]:
        return (0, after.size) if after.moved else (after.low, after.high)

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        size, larger = divmod(len(rows), self.parts)
        border = larger * (size + 1)
        for at in range(start, stop):
            yield at // (size + 1) + 1 if at < border else (at - border) // size + larger + 1
