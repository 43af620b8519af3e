"""Copies: the rows at one time written to a file by replicas. The first answer is the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePath
from typing import TypeAlias

from penstock.compute.controller.instance import Instance
from penstock.compute.controller.replica_targeting import lost_target
from penstock.compute.controller.unable import Unable
from penstock.compute.errors import BadMessage
from penstock.compute.protocol.dataflow import Dataflow, Id
from penstock.compute.protocol.responses import CopyToResponse, Dropped, Problem, RowCount

CopyAnswer: TypeAlias = RowCount | Problem | Dropped


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy without an answer. time: of the rows. since: ms of the clock when it was asked for."""

    id: Id
    view: str
    time: int
    since: int
    target: str | None
    answer: Callable[[CopyAnswer], None]
    unable: Unable


def check_file(file: str) -> None:
    """Raises `BadMessage` for what is no plain name of a file in a form that replicas write."""
    if file != PurePath(file).name or "\\" in file or not file.isprintable():
        raise BadMessage(f"{file!r} is no plain name of a file", fix="name no folder", field="file")
    if not file.endswith((".jsonl", ".parquet")):
        raise BadMessage(f"{file!r} has no known form", fix="end it in .jsonl or .parquet", field="file")


class Copies:
    """The copies under way of a controller, by id."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._pending: dict[Id, Copy] = {}

    def start(self, dataflow: Dataflow, copy: Copy) -> None:
        """Ask the replicas for it."""
        self._pending[copy.id] = copy
        self._instance.create(dataflow, copy.target)

    def copied(self, replica: str, response: CopyToResponse) -> None:
        """A replica has answered. `Dropped` is no answer: it was told to."""
        copy = self._pending.get(response.id)
        if copy is None or copy.target not in (None, replica) or isinstance(response.result, Dropped):
            return
        result: CopyAnswer | None = response.result
        if isinstance(result, Problem) and copy.target is None:
            result = copy.unable.hear(replica, result)
        if result is not None:
            self._finish(copy, result)

    def find(self, id: Id) -> Copy | None:
        return self._pending.get(id)

    def give_up(self, id: Id, problem: Problem) -> None:
        """Answer with a problem, where it waits."""
        copy = self._pending.get(id)
        if copy is not None:
            self._finish(copy, problem)

    def cancel(self, id: Id) -> bool:
        """Answer `Dropped` at once; False where nothing of that id waits."""
        copy = self._pending.get(id)
        if copy is None:
            return False
        self._finish(copy, Dropped())
        return True

    def cancel_reading(self, name: str) -> None:
        """What they read is dropped."""
        for id in [c.id for c in self._pending.values() if c.view == name]:
            self.cancel(id)

    def lost(self, replica: str) -> None:
        """A replica is gone: what only it could write is answered with that."""
        for copy in list(self._pending.values()):
            problem = lost_target(replica) if copy.target == replica else copy.unable.lost(replica)
            if problem is not None:
                self._finish(copy, problem)

    def _finish(self, copy: Copy, answer: CopyAnswer) -> None:
        del self._pending[copy.id]
        self._instance.drop([copy.id])
        copy.answer(answer)
