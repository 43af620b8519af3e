"""Partitions: the answers of several workers, each with a part of the rows, as the answers of one replica.

What is being merged is known from the responses alone: the first one about something begins it, the last one
ends it. A worker's frontier counts as START until it is heard of.
Source: the compute protocol of Materialize, partitioned clients (reference).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from penstock.compute.errors import ResultTooLarge, TotalResultTooLarge
from penstock.compute.frontier import END, START, Frontier, meet
from penstock.compute.partitioned_subscription import PartitionedSubscription
from penstock.compute.problems import problem_of
from penstock.compute.protocol.commands import Command, CreateTimely, UpdateConfiguration
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import (
    Canceled,
    CopyToResponse,
    Counted,
    Dropped,
    Frontiers,
    PeekResponse,
    Problem,
    Response,
    Row,
    RowCount,
    Rows,
    Stashed,
    Status,
    SubscribeResponse,
)
from penstock.errors import Origin


def reading_worker(uuid: bytes, parts: int) -> int:
    """The one worker that reads a durable collection for a peek; the others answer with no rows."""
    return zlib.crc32(uuid) % parts


@dataclass(frozen=True, slots=True)
class MergedStash:
    """The rows of a peek of which some workers have stashed theirs.

    loose: rows of the others. tokens: by worker, of what is stashed there.
    """

    loose: tuple[Counted, ...]
    tokens: Mapping[int, bytes]


class Partitioned:
    """Merges the responses of `parts` workers.

    size:            bytes of a row, as `max_result_size` counts them.
    max_result_size: bytes that the rows of one answer may have together; None: any.
    """

    def __init__(self, parts: int, size: Callable[[Row], int], max_result_size: int | None = None) -> None:
        self.parts = parts
        self.max_result_size = max_result_size
        self._size = size
        self.reset()

    @property
    def tracked(self) -> int:
        """How many exports and peeks are neither finished nor unheard of."""
        return len(self._frontiers) + len(self._peeks) + len(self._subscriptions) + len(self._copies)

    def reset(self) -> None:
        """Forget all that is being merged: another connection begins. The limit stays."""
        self._frontiers: dict[Id, _Frontiers] = {}
        self._peeks: dict[bytes, dict[int, Rows | Stashed | Problem | Canceled]] = {}
        self._subscriptions: dict[Id, PartitionedSubscription] = {}
        self._copies: dict[Id, dict[int, RowCount | Problem | Dropped]] = {}
        self._stashes: dict[bytes, MergedStash] = {}

    def observe(self, command: Command) -> None:
        """A command on its way to the workers: `CreateTimely` resets, settings change the limit."""
        if isinstance(command, CreateTimely):
            self.reset()
        elif isinstance(command, UpdateConfiguration) and command.parameters.max_result_size is not None:
            self.max_result_size = command.parameters.max_result_size

    def absorb(self, part: int, response: Response) -> Response | None:
        """What the replica says now that a worker has said `response`; None: nothing yet."""
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
        """What a merged `Stashed` stands for, once; None where there is none."""
        return self._stashes.pop(token, None)

    def _absorb_frontiers(self, part: int, told: Frontiers) -> Frontiers | None:
        merged = self._frontiers.setdefault(told.id, _Frontiers(self.parts))
        risen = merged.absorb(part, told)
        if merged.ended:
            del self._frontiers[told.id]
        return risen

    def _absorb_event(self, part: int, response: SubscribeResponse) -> SubscribeResponse | None:
        merged = self._subscriptions.get(response.id)
        if merged is None:
            merged = PartitionedSubscription(self.parts, self._size)
            self._subscriptions[response.id] = merged
        event = merged.absorb(part, response.event, self.max_result_size)
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
        size += sum(self._size(row) for a in answers if isinstance(a, Rows) for row, _ in a.rows)
        problem = self._worst([a for a in answers if isinstance(a, Problem)], size)
        if problem is not None:
            return PeekResponse(uuid, problem)
        if not stashed:
            return PeekResponse(uuid, Rows(rows))
        loose = tuple(row for a in answers if isinstance(a, Rows) for row in a.rows)
        self._stashes[uuid] = MergedStash(loose, {part: s.token for part, s in stashed.items()})
        count = len(loose) + sum(s.rows for s in stashed.values())
        return PeekResponse(uuid, Stashed(uuid, count, size, rows))

    def _worst(self, problems: list[Problem], size: int) -> Problem | None:
        """Too much comes first, whoever finds it, then what every replica would say, so that the answer does
        not depend on who is how far."""
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
    """The error for answers that are small enough each, and too large together."""
    return TotalResultTooLarge(
        f"the answers of the workers together have {size} bytes, more than the {limit} that are allowed",
        fix="ask for less (keys, a predicate, a limit), or allow more with max_result_size",
        size=size,
        limit=limit,
    )


def _of_process(problem: Problem) -> bool:
    return problem.origin is Origin.PROCESS


def _rows(answer: Rows | Stashed | Problem | Canceled) -> tuple[Counted, ...]:
    match answer:
        case Rows(rows):
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
    """One kind of frontier: of each worker, and of all together."""

    of_part: list[Frontier]
    told: Frontier = START

    def absorb(self, part: int, frontier: Frontier | None) -> Frontier | None:
        """The frontier of all, if it rises. A worker's that goes back changes nothing."""
        if frontier is None:
            return None
        self.of_part[part] = max(self.of_part[part], frontier)
        together = meet(self.of_part)
        if together <= self.told:
            return None
        self.told = together
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
        return self.write.told == self.input.told == self.output.told == END

    def absorb(self, part: int, told: Frontiers) -> Frontiers | None:
        risen = Frontiers(
            told.id,
            self.write.absorb(part, told.write),
            self.input.absorb(part, told.input),
            self.output.absorb(part, told.output),
        )
        return None if risen == Frontiers(told.id) else risen
