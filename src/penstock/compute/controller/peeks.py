"""Peeks that wait for an answer. The first answer of any replica is the answer, an error in the data too; an
error of the replica itself only where no other is left.

Then all replicas are told to cancel it, and only then its hold is released: a replica that still works on it
has what it reads until it has been told to stop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from penstock.compute.controller.holds import ReadHold
from penstock.compute.controller.instance import Instance
from penstock.compute.controller.replica_targeting import lost_target
from penstock.compute.controller.requests import PeekAnswer, StashedAt
from penstock.compute.controller.unable import Unable
from penstock.compute.errors import TooManyPeeks, UnknownName
from penstock.compute.problems import problem_of
from penstock.compute.protocol.commands import CancelPeek, Peek
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Canceled, PeekResponse, Problem, Stashed

MOST_PENDING = 10_000
"""Peeks that wait, of all clients: a replica takes no more either."""


@dataclass(frozen=True, slots=True)
class PendingPeek:
    """A peek without an answer.

    view:   the name that was asked for.
    target: the only replica that may answer; None: any.
    since:  ms of the clock when it was asked.
    """

    peek: Peek
    view: str
    target: str | None
    since: int
    hold: ReadHold
    answer: Callable[[PeekAnswer], None]
    unable: Unable


class Peeks:
    """The pending peeks of a controller, by uuid."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._pending: dict[bytes, PendingPeek] = {}

    def __iter__(self) -> Iterator[PendingPeek]:
        return iter(self._pending.values())

    def target_of(self, uuid: bytes) -> str | None:
        """The only replica that may answer it, if there is one."""
        pending = self._pending.get(uuid)
        return pending.target if pending else None

    def check_room(self) -> None:
        """Raises `TooManyPeeks` where as many wait as one replica takes."""
        if len(self._pending) >= MOST_PENDING:
            raise TooManyPeeks(
                f"{MOST_PENDING:,} peeks wait for their answer already",
                why="No replica answers, or not as fast as clients ask.",
                fix="wait for some of them; penstock status shows what replicas do",
                limit=MOST_PENDING,
            )

    def ask(self, pending: PendingPeek) -> None:
        """Ask the replicas."""
        self._pending[pending.peek.uuid] = pending
        self._instance.send(pending.peek)

    def answered(self, replica: str, response: PeekResponse) -> None:
        """A replica has answered. Only the first answer to a peek counts; `Canceled` is none, a problem of
        the replica's own is one only where no other replica is left."""
        pending = self._pending.get(response.uuid)
        if pending is None or pending.target not in (None, replica) or isinstance(response.answer, Canceled):
            return
        answer = response.answer
        if isinstance(answer, Stashed):
            answer = StashedAt(answer.token, answer.rows, answer.size, answer.inline, replica)
        elif isinstance(answer, Problem) and pending.target is None:
            verdict = pending.unable.hear(replica, answer)
            if verdict is None:
                return
            answer = verdict
        self._finish(pending, answer)

    def find(self, uuid: bytes) -> PendingPeek | None:
        return self._pending.get(uuid)

    def give_up(self, uuid: bytes, problem: Problem) -> None:
        """Answer with a problem, where it waits."""
        pending = self._pending.get(uuid)
        if pending is not None:
            self._finish(pending, problem)

    def cancel(self, uuid: bytes) -> bool:
        """Answer `Canceled` at once; False where nothing of that uuid waits."""
        pending = self._pending.get(uuid)
        if pending is None:
            return False
        self._finish(pending, Canceled())
        return True

    def lost(self, replica: str) -> None:
        """A replica is gone: what only it could answer is answered with that."""
        for pending in list(self._pending.values()):
            problem = lost_target(replica) if pending.target == replica else pending.unable.lost(replica)
            if problem is not None:
                self._finish(pending, problem)

    def dropped(self, id: Id) -> None:
        """A collection is written no more: who waits for a later time of it would wait for ever.

        Those are peeks of it, and of dropped views over it.
        """
        if not self._instance.is_collection(id):
            return
        upper = self._instance.upper(id)
        for pending in list(self._pending.values()):
            peek = pending.peek
            if not upper.passed(peek.time) and self._instance.depends(peek.target.id, id):
                gone = UnknownName(
                    f"{pending.view!r} was dropped before time {peek.time}",
                    fix="create it again, or read a time at which it was there",
                    name=pending.view,
                )
                self._finish(pending, problem_of(gone))

    def _finish(self, pending: PendingPeek, answer: PeekAnswer) -> None:
        del self._pending[pending.peek.uuid]
        self._instance.send(CancelPeek(pending.peek.uuid))
        pending.hold.release()
        pending.answer(answer)
