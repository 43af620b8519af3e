"""Window functions whose answer is the value of another row of the partition."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from headrace.engine.partition_frames import FramedFunction
from headrace.engine.partitions import Function, Key, Rows, Stretch


@dataclass(slots=True)
class Lagged(Function):
    """Values some rows before, or after.

    value: of a row. default: for a row without another.
    """

    value: Key
    default: Key
    offset: int
    ignore_nulls: bool

    @property
    def is_local(self) -> bool:  # type: ignore[override]
        return not self.ignore_nulls

    def affected(self, after: Stretch) -> tuple[int, int]:
        if self.ignore_nulls:
            return (after.low, after.size) if self.offset > 0 else (0, after.high)
        if self.offset > 0:
            return after.low, min(after.size, after.high + self.offset)
        return max(0, after.low + self.offset), after.high

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        value, default = self.value, self.default
        if self.ignore_nulls and self.offset:
            for at, found in enumerate(self._non_nulls(rows, start, stop), start):
                yield default(rows[at]) if found is None else found
            return
        for at in range(start, stop):
            other = at - self.offset
            yield value(rows[other]) if 0 <= other < len(rows) else default(rows[at])

    def _non_nulls(self, rows: Rows, start: int, stop: int) -> Iterator[Any]:
        places, size = range(start, stop), len(rows)
        frames = ((0, at) for at in places) if self.offset > 0 else ((at + 1, size) for at in places)
        return nth_non_nulls(rows, self.value, -self.offset, frames)


@dataclass(slots=True)
class NthValues(FramedFunction):
    """Values of the n-th rows of frames, from the end where `n` is negative."""

    value: Key
    n: int
    ignore_nulls: bool

    def answers(self, rows: Rows, start: int, stop: int, before: Any) -> Iterable[Any]:
        value, n, frames = self.value, self.n, self.bounds.of(rows, start, stop)
        if self.ignore_nulls:
            yield from nth_non_nulls(rows, value, n, frames)
            return
        for first, last in frames:
            at = first + n - 1 if n > 0 else last + n
            yield value(rows[at]) if first <= at < last else None


def nth_non_nulls(rows: Rows, value: Key, n: int, frames: Iterable[tuple[int, int]]) -> Iterator[Any]:
    """Yield the n-th non-null value of each frame, from the end where `n` is negative; else None.

    The bounds of frames must not fall from one frame to the next: each row is looked at once.
    """
    return _from_the_start(rows, value, n, frames) if n > 0 else _from_the_end(rows, value, -n, frames)


def _from_the_start(rows: Rows, value: Key, n: int, frames: Iterable[tuple[int, int]]) -> Iterator[Any]:
    found: deque[tuple[int, Any]] = deque()  # the first non-nulls of the frame, with their places
    seen = 0
    for first, last in frames:
        while found and found[0][0] < first:
            found.popleft()
        seen = max(seen, first)
        while len(found) < n and seen < last:
            if (present := value(rows[seen])) is not None:
                found.append((seen, present))
            seen += 1
        yield found[-1][1] if len(found) == n else None


def _from_the_end(rows: Rows, value: Key, n: int, frames: Iterable[tuple[int, int]]) -> Iterator[Any]:
    found: deque[tuple[int, Any]] = deque()  # the last non-nulls before the frame's end, with their places
    seen = None
    for first, last in frames:
        if seen is None:
            # The first frame may be long, and its last rows tell: later ones do not begin before it.
            for at in range(last - 1, first - 1, -1):
                if (present := value(rows[at])) is not None:
                    found.appendleft((at, present))
                    if len(found) == n:
                        break
        else:
            for at in range(max(seen, first), last):
                if (present := value(rows[at])) is not None:
                    found.append((at, present))
                    if len(found) > n:
                        found.popleft()
        seen = last
        yield found[0][1] if len(found) == n and found[0][0] >= first else None
