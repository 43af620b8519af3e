"""Subscriptions: the changes of a sink, sent as they become settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.compute.errors import ResultTooLarge
from penstock.compute.frontier import END, START, Frontier
from penstock.compute.problems import problem_of
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import (
    Batch,
    Counted,
    DroppedAt,
    Problem,
    Row,
    SubscribeResponse,
    Update,
)
from penstock.compute.replica.failed import Failed
from penstock.compute.replica.outlet import Outlet
from penstock.compute.replica.sizes import row_size


class SubscribeOutlet(Outlet):
    """Tells batches that cover all times from 0 on, the first of them to beyond the as-of.

    limit: how many bytes a batch may have; None: any number.
    """

    def __init__(
        self,
        id: Id,
        sink: str,
        *,
        skipped: int | None,
        limit: Callable[[], int | None],
        tell: Callable[[SubscribeResponse], None],
    ) -> None:
        super().__init__(id, sink)
        self._skipped = skipped
        self._limit = limit
        self._tell = tell
        self._time = -1
        self._open: list[Sequence[Counted]] = []
        self._updates: list[Update] = []
        self._size = 0
        self._lower = self._upper = START
        self._over = False

    def add(self, changes: Sequence[Counted], time: int) -> None:
        if time != self._skipped and not self._over:
            self._time = time
            self._open.append(changes)

    def advance(self, upper: Frontier) -> None:
        if self._open:
            self._close(self._time)
        self._upper = upper

    def _close(self, time: int) -> None:
        parts, self._open = self._open, []
        total: dict[Row, int] = {}
        for changes in parts:
            for row, weight in changes:
                total[row] = total.get(row, 0) + weight
        for row, weight in total.items():
            if weight:
                self._updates.append((row, time, weight))
                self._size += row_size(row)

    def finish(self) -> None:
        self._upper = END
        self.flush()

    def flush(self) -> None:
        if self._over or self._upper <= self._lower:
            return
        limit = self._limit()
        if limit is not None and self._size > limit:
            self._poison(self._upper, problem_of(_too_large(self._size, limit), id=self.id))
            return
        updates, self._updates, self._size = self._updates, [], 0
        self._send(self._upper, tuple(updates))

    def fail(self, failed: Failed) -> None:
        self.flush()
        if not self._over:
            self._poison(Frontier(failed.time + 1), problem_of(failed.error))

    def _poison(self, upper: Frontier, problem: Problem) -> None:
        self._send(upper, problem)
        self._over = True
        self._updates, self._open = [], []

    def _send(self, upper: Frontier, updates: tuple[Update, ...] | Problem) -> None:
        self._tell(SubscribeResponse(self.id, Batch(self._lower, upper, updates)))
        self._lower = upper

    def clear(self) -> None:
        self._open.clear()

    def drop(self) -> None:
        if not self._lower.ended:
            self._tell(SubscribeResponse(self.id, DroppedAt(self._lower)))
        self._over = True


def _too_large(size: int, limit: int) -> ResultTooLarge:
    return ResultTooLarge(
        f"a batch of {size} bytes is above the limit of {limit}",
        why="the changes of a time are sent together",
        fix="subscribe without a snapshot, to fewer rows, or raise max_result_size",
        size=size,
        limit=limit,
    )
