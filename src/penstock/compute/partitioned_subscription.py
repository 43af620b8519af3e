"""A subscription of which each worker sends a part: whole batches, as far as all workers are."""

from __future__ import annotations

from collections.abc import Callable

from penstock.compute.errors import TotalResultTooLarge
from penstock.compute.frontier import END, START, Frontier, meet
from penstock.compute.problems import problem_of
from penstock.compute.protocol.responses import Batch, DroppedAt, Problem, Row, Update
from penstock.errors import Origin


class PartitionedSubscription:
    """Merges the batches of `parts` workers. A problem of one of them holds for all later batches.

    size: bytes of a row.
    """

    def __init__(self, parts: int, size: Callable[[Row], int]) -> None:
        self._size = size
        self._uppers = [START] * parts
        self._done = [False] * parts
        self._told = START
        self._waiting: list[Update] = []
        self._waiting_size = 0
        self._problem: Problem | None = None
        self._dropped = False

    @property
    def ended(self) -> bool:
        """Whether every worker has said its last word."""
        return all(self._done)

    def absorb(self, part: int, event: Batch | DroppedAt, limit: int | None) -> Batch | DroppedAt | None:
        """What is known of all workers now that one has said `event`; None: no more than before.

        limit: bytes that the updates that wait for slower workers may have together.
        """
        assert not self._done[part], f"worker {part} speaks after its last word"
        match event:
            case DroppedAt():
                self._done[part] = True
                first, self._dropped = not self._dropped, True
                self._forget()
                return event if first else None
            case Batch(lower, upper, updates):
                assert lower == self._uppers[part], f"worker {part} goes on at {lower}, not where it was"
                self._uppers[part] = upper
                self._done[part] = upper == END
                self._keep(updates, limit)
                return self._whole(meet(self._uppers))

    def _keep(self, updates: tuple[Update, ...] | Problem, limit: int | None) -> None:
        if self._dropped or (self._problem is not None and not isinstance(updates, Problem)):
            return
        if isinstance(updates, Problem):
            # What every replica would say counts more than how one of the workers is.
            if self._problem is None or updates.origin is Origin.DATA is not self._problem.origin:
                self._problem = updates
        else:
            self._waiting.extend(updates)
            self._waiting_size += sum(self._size(row) for row, _, _ in updates)
            if limit is not None and self._waiting_size > limit:
                self._problem = problem_of(_too_large(self._waiting_size, limit))
        if self._problem is not None:
            self._forget()

    def _whole(self, upper: Frontier) -> Batch | None:
        if self._dropped or upper <= self._told:
            return None
        lower, self._told = self._told, upper
        if self._problem is not None:
            return Batch(lower, upper, self._problem)
        whole = [update for update in self._waiting if upper.passed(update[1])]
        self._waiting = [update for update in self._waiting if not upper.passed(update[1])]
        self._waiting_size = sum(self._size(row) for row, _, _ in self._waiting)
        return Batch(lower, upper, consolidated(whole))

    def _forget(self) -> None:
        self._waiting.clear()
        self._waiting_size = 0


def consolidated(updates: list[Update]) -> tuple[Update, ...]:
    """By time, each row once per time, without those that come to nothing.

    >>> consolidated([("a", 2, 1), ("b", 1, 1), ("a", 2, 1), ("b", 1, -1)])
    (('a', 2, 2),)
    """
    weights: dict[tuple[int, Row], int] = {}
    for row, time, weight in updates:
        weights[time, row] = weights.get((time, row), 0) + weight
    return tuple(
        (row, time, weights[time, row]) for time, row in sorted(weights, key=_time) if weights[time, row]
    )


def _time(key: tuple[int, Row]) -> int:
    return key[0]


def _too_large(size: int, limit: int) -> TotalResultTooLarge:
    return TotalResultTooLarge(
        f"changes of {size} bytes wait for the slowest worker, more than the {limit} that are allowed",
        fix="allow more with max_result_size",
        size=size,
        limit=limit,
    )
