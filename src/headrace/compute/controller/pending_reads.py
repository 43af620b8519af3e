"""Pending reads of one controller: peeks and copies, and their common base with subscriptions.

A read goes to every replica, or to its target; the first answer wins. A problem of the replica itself (a full
disk, too little memory) does not count as an answer as long as some other connected replica may still
respond. Once none is left, the first such problem is the answer.

The read hold of a peek is released only after its cancellation is sent, so no replica loses data that it is
still reading.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Generic, Protocol, TypeAlias, TypeVar

from headrace.compute.controller.holds import ReadHold
from headrace.compute.controller.instance import Instance
from headrace.compute.controller.requests import PeekAnswer, StashedOnReplica
from headrace.compute.errors import BadMessage, TargetReplicaLost, TooManyPeeks, UnknownName
from headrace.compute.problem_conversion import problem_of
from headrace.compute.protocol.commands import CancelPeek, Peek
from headrace.compute.protocol.dataflow import Dataflow, Id
from headrace.compute.protocol.responses import (
    Canceled,
    CopyToResponse,
    Dropped,
    PeekResponse,
    Problem,
    RowCount,
    Stashed,
)
from headrace.errors import Origin

MAX_PENDING = 10_000
"""Limit on pending peeks across all clients. Replicas enforce the same limit."""


@dataclass(slots=True, eq=False)
class PendingRead:
    """Read awaiting an answer, with the problems of replicas that cannot give one.

    what:      the read, as a noun.
    view:      name used by the client.
    time:      time to read at; for a subscription, the first time.
    target:    the only replica allowed to answer, or None for any.
    asked_at:  ms of the clock.
    connected: returns the names of the currently connected replicas.
    note:      called with each problem of a replica itself, which the client may never see.
    problems:  problems of replicas that cannot answer, by replica.
    """

    what: str
    view: str
    time: int
    target: str | None
    asked_at: int
    connected: Callable[[], Iterable[str]]
    note: Callable[[str, str], None]
    problems: dict[str, Problem] = field(default_factory=dict[str, Problem])

    def accepts(self, replica: str) -> bool:
        """Whether a replica may answer."""
        return self.target in (None, replica)

    def on_problem(self, replica: str, problem: Problem) -> Problem | None:
        """Handle a problem in place of a replica's answer. Returns the problem to pass on, if any."""
        if self.target is not None or problem.origin is Origin.DATA:
            return problem
        self.note(replica, f"it cannot answer a {self.what}: {problem.message}")
        self.problems[replica] = problem
        return self._verdict()

    def on_replica_lost(self, replica: str) -> Problem | None:
        """Handle the loss of a replica, which is asked again when it reconnects.

        Returns the problem to pass on, if any.
        """
        if self.target == replica:
            return problem_of(target_lost_error(replica))
        self.problems.pop(replica, None)
        return self._verdict()

    def _verdict(self) -> Problem | None:
        """Return the first problem if no connected replica can still answer."""
        if not self.problems or any(name not in self.problems for name in self.connected()):
            return None
        return next(iter(self.problems.values()))


def target_lost_error(replica: str) -> TargetReplicaLost:
    """Build the error for a read from a target replica that is not connected."""
    return TargetReplicaLost(
        f"replica {replica!r} is not connected",
        why="The read is for this replica only; it failed, was dropped, or has not connected yet.",
        fix="read from any replica, or retry later",
        replica=replica,
    )


class _HasRead(Protocol):
    @property
    def read(self) -> PendingRead: ...


K = TypeVar("K")
P = TypeVar("P", bound=_HasRead)


class PendingReads(Generic[K, P]):
    """Pending reads of one kind, by uuid or id."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._pending: dict[K, P] = {}

    def __iter__(self) -> Iterator[P]:
        return iter(self._pending.values())

    def find(self, key: K) -> P | None:
        """Return the read with a key, if it is pending."""
        return self._pending.get(key)

    def answer_problem(self, key: K, problem: Problem) -> None:
        """Answer a read with a problem, if it is pending."""
        pending = self._pending.get(key)
        if pending is not None:
            self._fail(pending, problem)

    def cancel(self, key: K) -> bool:
        """Cancel a read, answering so immediately. Returns whether it was pending."""
        pending = self._pending.get(key)
        if pending is None:
            return False
        self._cancel(pending)
        return True

    def cancel_view(self, name: str) -> None:
        """Cancel all reads of a dropped view."""
        for pending in [p for p in self if p.read.view == name]:
            self._cancel(pending)

    def on_replica_lost(self, replica: str) -> None:
        """Fail the reads that only a lost replica could answer."""
        for pending in list(self):
            problem = pending.read.on_replica_lost(replica)
            if problem is not None:
                self._fail(pending, problem)

    @abstractmethod
    def _fail(self, pending: P, problem: Problem) -> None: ...

    @abstractmethod
    def _cancel(self, pending: P) -> None: ...


@dataclass(frozen=True, slots=True)
class PendingPeek:
    """Peek awaiting its first answer."""

    peek: Peek
    read: PendingRead
    hold: ReadHold
    answer: Callable[[PeekAnswer], None]


class Peeks(PendingReads[bytes, PendingPeek]):
    """Pending peeks of a controller, by uuid."""

    def check_capacity(self) -> None:
        """Raise `TooManyPeeks` if the limit is reached."""
        if len(self._pending) >= MAX_PENDING:
            raise TooManyPeeks(
                f"{MAX_PENDING:,} peeks are already pending",
                why="No replica is answering, or clients ask faster than replicas answer.",
                fix="retry later, or check the replicas with `headrace status`",
                limit=MAX_PENDING,
            )

    def send(self, pending: PendingPeek) -> None:
        """Send the peek to the replicas."""
        self._pending[pending.peek.uuid] = pending
        self._instance.send(pending.peek)

    def on_response(self, replica: str, response: PeekResponse) -> None:
        """Deliver the first answer; ignore later ones and `Canceled`."""
        pending = self._pending.get(response.uuid)
        answer = response.answer
        if pending is None or not pending.read.accepts(replica) or isinstance(answer, Canceled):
            return
        if isinstance(answer, Stashed):
            answer = StashedOnReplica(answer.token, answer.rows, answer.size, answer.inline, replica)
        elif isinstance(answer, Problem):
            answer = pending.read.on_problem(replica, answer)
        if answer is not None:
            self._finish(pending, answer)

    def on_collection_dropped(self, id: Id) -> None:
        """Fail the peeks that wait for a later time of a dropped collection, or of dropped views over it."""
        if not self._instance.is_collection(id):
            return
        upper = self._instance.upper(id)
        for pending in list(self):
            peek, view = pending.peek, pending.read.view
            if not upper.has_passed(peek.time) and self._instance.depends_on(peek.target.id, id):
                gone = UnknownName(
                    f"{view!r} was dropped before time {peek.time}",
                    fix="create it again, or read a time at which it existed",
                    name=view,
                )
                self._fail(pending, problem_of(gone))

    def _fail(self, pending: PendingPeek, problem: Problem) -> None:
        self._finish(pending, problem)

    def _cancel(self, pending: PendingPeek) -> None:
        self._finish(pending, Canceled())

    def _finish(self, pending: PendingPeek, answer: PeekAnswer) -> None:
        del self._pending[pending.peek.uuid]
        self._instance.send(CancelPeek(pending.peek.uuid))
        pending.hold.release()
        pending.answer(answer)


CopyAnswer: TypeAlias = RowCount | Problem | Dropped


@dataclass(frozen=True, slots=True)
class PendingCopy:
    """Copy to a file on the replicas, awaiting its first answer."""

    id: Id
    read: PendingRead
    answer: Callable[[CopyAnswer], None]


def check_file(file: str) -> None:
    """Raise `BadMessage` unless `file` is a plain file name with the suffix of a supported format."""
    if file != PurePath(file).name or "\\" in file or not file.isprintable():
        raise BadMessage(
            f"{file!r} is not a plain file name", fix="give a file name without a folder", field="file"
        )
    if not file.endswith((".jsonl", ".parquet")):
        raise BadMessage(f"{file!r} has no known format", fix="end it in .jsonl or .parquet", field="file")


class Copies(PendingReads[Id, PendingCopy]):
    """Pending copies of a controller, by id."""

    def start(self, dataflow: Dataflow, copy: PendingCopy) -> None:
        """Send the copy's dataflow to the replicas."""
        self._pending[copy.id] = copy
        self._instance.create(dataflow, copy.read.target)

    def on_response(self, replica: str, response: CopyToResponse) -> None:
        """Deliver the first answer; ignore later ones and `Dropped`."""
        copy = self._pending.get(response.id)
        answer: CopyAnswer | None = response.result
        if copy is None or not copy.read.accepts(replica) or isinstance(answer, Dropped):
            return
        if isinstance(answer, Problem):
            answer = copy.read.on_problem(replica, answer)
        if answer is not None:
            self._finish(copy, answer)

    def _fail(self, pending: PendingCopy, problem: Problem) -> None:
        self._finish(pending, problem)

    def _cancel(self, pending: PendingCopy) -> None:
        self._finish(pending, Dropped())

    def _finish(self, copy: PendingCopy, answer: CopyAnswer) -> None:
        del self._pending[copy.id]
        self._instance.drop([copy.id])
        copy.answer(answer)
