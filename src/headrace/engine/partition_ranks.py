"""Window functions that number rows by their place in the partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from headrace.engine.partitions import Function, Peers, Rows, Stretch


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
