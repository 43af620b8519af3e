"""Merging of responses from several workers, each with a part of the rows, into one replica's.

State is derived from the responses alone: the first one about an export or peek begins it, the last one ends
it. A worker's frontier counts as START until its first report.
Source: the compute protocol of Materialize, partitioned clients (reference).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from headrace.compute.errors import ResultTooLarge, TotalResultTooLarge, problem_of
from headrace.compute.frontier import END, START, Frontier, meet
from headrace.compute.protocol.commands import Command, CreateTimely, Id, UpdateConfiguration
from headrace.compute.protocol.responses import (
    BatchResponse,
    Canceled,
    CopyToResponse,
    Counted,
    Dropped,
    DroppedAt,
    EncodedUpdates,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    RowCount,
    RowsResponse,
    Stashed,
    Status,
    SubscribeResponse,
    Update,
)
from headrace.errors import Origin
from headrace.expr.types import Row


class PartitionedSubscription:
    """Merger of a subscription's batches from `parts` workers.

    A problem of one worker replaces all later batches.

    size: returns the bytes of a row.
    """

    def __init__(self, parts: int, size: Callable[[Row], int]) -> None:
        self._size = size
        self._uppers = [START] * parts
        self._done = [False] * parts
        self._reported = START
        self._waiting: list[Update] = []
        self._waiting_size = 0
        self._problem: Problem | None = None
        self._dropped = False

    @property
    def ended(self) -> bool:
        """Return whether every worker has sent its last event."""
        return all(self._done)

    def merge_event(
        self, part: int, event: BatchResponse | DroppedAt, limit: int | None
    ) -> BatchResponse | DroppedAt | None:
        """Take an event from one worker. Returns the merged event, or None if there is no progress.

        limit: maximum total bytes of updates that wait for slower workers.
        """
        assert not self._done[part], f"worker {part} responds after its last event"
        match event:
            case DroppedAt():
                self._done[part] = True
                first, self._dropped = not self._dropped, True
                self._forget()
                return event if first else None
            case BatchResponse(lower, upper, updates):
                assert lower == self._uppers[part], f"worker {part} goes on at {lower}, not where it was"
                self._uppers[part] = upper
                self._done[part] = upper == END
                # What is divided among workers runs in rows.
                assert not isinstance(updates, EncodedUpdates)
                self._keep(updates, limit)
                return self._whole(meet(self._uppers))

    def _keep(self, updates: tuple[Update, ...] | Problem, limit: int | None) -> None:
        if self._dropped or (self._problem is not None and not isinstance(updates, Problem)):
            return
        if isinstance(updates, Problem):
            # A problem of the data, alike on all replicas, has precedence over one of a worker.
            if self._problem is None or updates.origin is Origin.DATA is not self._problem.origin:
                self._problem = updates
        else:
            self._waiting.extend(updates)
            self._waiting_size += sum(self._size(row) for row, _, _ in updates)
            if limit is not None and self._waiting_size > limit:
                self._problem = problem_of(_too_large(self._waiting_size, limit))
        if self._problem is not None:
            self._forget()

    def _whole(self, upper: Frontier) -> BatchResponse | None:
        if self._dropped or upper <= self._reported:
            return None
        lower, self._reported = self._reported, upper
        if self._problem is not None:
            return BatchResponse(lower, upper, self._problem)
        whole = [update for update in self._waiting if upper.has_passed(update[1])]
        self._waiting = [update for update in self._waiting if not upper.has_passed(update[1])]
        self._waiting_size = sum(self._size(row) for row, _, _ in self._waiting)
        return BatchResponse(lower, upper, consolidate_updates(whole))

    def _forget(self) -> None:
        self._waiting.clear()
        self._waiting_size = 0


def consolidate_updates(updates: list[Update]) -> tuple[Update, ...]:
    """Consolidate updates: ordered by time, each row once per time, zero weights dropped.

    >>> consolidate_updates([("a", 2, 1), ("b", 1, 1), ("a", 2, 1), ("b", 1, -1)])
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
        f"changes of {size} bytes wait for the slowest worker, above the limit of {limit}",
        fix="allow more with max_result_size",
        size=size,
        limit=limit,
    )


def choose_reading_worker(uuid: bytes, parts: int) -> int:
    """Choose the worker that reads a durable collection for a peek; the others answer without rows."""
    return zlib.crc32(uuid) % parts


@dataclass(frozen=True, slots=True)
class MergedStash:
    """Rows of a peek partly stashed on workers.

    loose: rows of the other workers. tokens: stash token of each worker that stashed its rows.
    """

    loose: tuple[Counted, ...]
    tokens: Mapping[int, bytes]


class ResponseMerger:
    """Merger of the responses of `parts` workers.

    size:            returns the bytes of a row, as `max_result_size` counts them.
    max_result_size: maximum total bytes of rows in one answer, or None for no limit.
    """

    def __init__(self, parts: int, size: Callable[[Row], int], max_result_size: int | None = None) -> None:
        self.parts = parts
        self.max_result_size = max_result_size
        self._size = size
        self.reset()

    @property
    def tracked_count(self) -> int:
        """Number of exports and peeks in progress."""
        return len(self._frontiers) + len(self._peeks) + len(self._subscriptions) + len(self._copies)

    def reset(self) -> None:
        """Discard all state except the limit, for a new connection."""
        self._frontiers: dict[Id, _Frontiers] = {}
        self._peeks: dict[bytes, dict[int, RowsResponse | Stashed | Problem | Canceled]] = {}
        self._subscriptions: dict[Id, PartitionedSubscription] = {}
        self._copies: dict[Id, dict[int, RowCount | Problem | Dropped]] = {}
        self._stashes: dict[bytes, MergedStash] = {}

    def observe(self, command: Command) -> None:
        """Observe a command to the workers: `CreateTimely` resets the state, settings may set the limit."""
        if isinstance(command, CreateTimely):
            self.reset()
        elif isinstance(command, UpdateConfiguration) and command.parameters.max_result_size is not None:
            self.max_result_size = command.parameters.max_result_size

    def merge_response(self, part: int, response: Response) -> Response | None:
        """Take a response from one worker. Returns the merged response, or None if there is none yet."""
        match response:
            case Frontiers():
                return self._absorb_frontiers(part, response)
            case PeekResponse(uuid, answer):
                answers = self._peeks.setdefault(uuid, {})
                assert part not in answers, f"worker {part} has answered the peek {uuid.hex()} twice"
                answers[part] = answer
                return self._answered(uuid) if len(answers) == self.parts else None
            case SubscribeResponse():
                return self._absorb_event(part, response)
            case CopyToResponse(id, result):
                results = self._copies.setdefault(id, {})
                assert part not in results, f"worker {part} has ended the copy {id!r} twice"
                results[part] = result
                return self._copied(id) if len(results) == self.parts else None
            case Status():
                return response

    def take_stash(self, token: bytes) -> MergedStash | None:
        """Take the parts of a merged `Stashed`, once; None if there are none."""
        return self._stashes.pop(token, None)

    def _absorb_frontiers(self, part: int, reported: Frontiers) -> Frontiers | None:
        merged = self._frontiers.setdefault(reported.id, _Frontiers(self.parts))
        risen = merged.absorb(part, reported)
        if merged.ended:
            del self._frontiers[reported.id]
        return risen

    def _absorb_event(self, part: int, response: SubscribeResponse) -> SubscribeResponse | None:
        merged = self._subscriptions.get(response.id)
        if merged is None:
            merged = PartitionedSubscription(self.parts, self._size)
            self._subscriptions[response.id] = merged
        event = merged.merge_event(part, response.event, self.max_result_size)
        if merged.ended:
            del self._subscriptions[response.id]
        return None if event is None else SubscribeResponse(response.id, event)

    def _answered(self, uuid: bytes) -> PeekResponse:
        by_part = self._peeks.pop(uuid)
        answers = [by_part[part] for part in range(self.parts)]
        for answer in answers:
            if isinstance(answer, Canceled):
                return PeekResponse(uuid, answer)
        rows = _union(row for answer in answers for row in _rows(answer))
        stashed = {part: a for part, a in by_part.items() if isinstance(a, Stashed)}
        # What is at hand of a stash is counted in its size.
        size = sum(s.size for s in stashed.values())
        size += sum(self._size(row) for a in answers if isinstance(a, RowsResponse) for row, _ in a.rows)
        problem = self._worst([a for a in answers if isinstance(a, Problem)], size)
        if problem is not None:
            return PeekResponse(uuid, problem)
        if not stashed:
            return PeekResponse(uuid, RowsResponse(rows))
        loose = tuple(row for a in answers if isinstance(a, RowsResponse) for row in a.rows)
        self._stashes[uuid] = MergedStash(loose, {part: s.token for part, s in stashed.items()})
        count = len(loose) + sum(s.rows for s in stashed.values())
        return PeekResponse(uuid, Stashed(uuid, count, size, rows))

    def _worst(self, problems: list[Problem], size: int) -> Problem | None:
        """Choose the problem to report: too large results first, then problems any replica would have.

        So the answer does not depend on the workers' progress.
        """
        too_large = [p for p in problems if p.code in (ResultTooLarge.code, TotalResultTooLarge.code)]
        if too_large:
            return too_large[0]
        if self.max_result_size is not None and size > self.max_result_size:
            return problem_of(total_too_large(size, self.max_result_size))
        return min(problems, key=_of_process, default=None)

    def _copied(self, id: Id) -> CopyToResponse:
        by_part = self._copies.pop(id)
        results = [by_part[part] for part in range(self.parts)]
        for result in results:
            if isinstance(result, Dropped):
                return CopyToResponse(id, result)
        problems = [result for result in results if isinstance(result, Problem)]
        if problems:
            return CopyToResponse(id, min(problems, key=_of_process))
        return CopyToResponse(id, RowCount(sum(r.rows for r in results if isinstance(r, RowCount))))


def total_too_large(size: int, limit: int) -> TotalResultTooLarge:
    """Create the error for answers that are too large only in total."""
    return TotalResultTooLarge(
        f"the answers of the workers together have {size} bytes, above the limit of {limit}",
        fix="ask for less (keys, a predicate, a limit), or allow more with max_result_size",
        size=size,
        limit=limit,
    )


def _of_process(problem: Problem) -> bool:
    return problem.origin is Origin.PROCESS


def _rows(answer: RowsResponse | Stashed | Problem | Canceled) -> tuple[Counted, ...]:
    match answer:
        case RowsResponse(rows):
            return rows
        case Stashed():
            return answer.inline
        case _:
            return ()


def _union(rows: Iterable[Counted]) -> tuple[Counted, ...]:
    counts: dict[Row, int] = {}
    for row, count in rows:
        counts[row] = counts.get(row, 0) + count
    return tuple(counts.items())


@dataclass(slots=True)
class _Kind:
    """Frontiers of one kind: each worker's, and the merged one."""

    of_part: list[Frontier]
    reported: Frontier = START

    def absorb(self, part: int, frontier: Frontier | None) -> Frontier | None:
        """Take a worker's frontier.

        Returns the merged frontier if it rises. A regressing frontier of a worker has no effect.
        """
        if frontier is None:
            return None
        self.of_part[part] = max(self.of_part[part], frontier)
        together = meet(self.of_part)
        if together <= self.reported:
            return None
        self.reported = together
        return together


@dataclass(slots=True)
class _Frontiers:
    parts: int
    write: _Kind = field(init=False)
    input: _Kind = field(init=False)
    output: _Kind = field(init=False)

    def __post_init__(self) -> None:
        self.write, self.input, self.output = (_Kind([START] * self.parts) for _ in range(3))

    @property
    def ended(self) -> bool:
        return self.write.reported == self.input.reported == self.output.reported == END

    def absorb(self, part: int, reported: Frontiers) -> Frontiers | None:
        risen = Frontiers(
            reported.id,
            self.write.absorb(part, reported.write),
            self.input.absorb(part, reported.input),
            self.output.absorb(part, reported.output),
        )
        return None if risen == Frontiers(reported.id) else risen
