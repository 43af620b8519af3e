"""What a replica tells its controller, and when: answers at once, frontiers as they rise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from penstock.compute.frontier_reports import ReportedFrontiers
from penstock.compute.protocol.dataflow import CollectionExport, Dataflow, Id, IndexExport
from penstock.compute.protocol.responses import Response
from penstock.compute.replica.runtime import Reached

INTERVAL = 25
"""Milliseconds between two reports of frontiers while there is other work, where nothing else is set."""


class Reporter:
    """The responses of the present connection. Silent until it is told to begin. clock: milliseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.silent = True
        self._clock = clock
        self._out: list[Response] = []
        self._guards: dict[Id, ReportedFrontiers] = {}
        self._dropped: dict[Id, None] = {}
        self._reported_at = 0
        self._anew = False

    def silence(self) -> None:
        """The connection is over: what was not told is not told any more."""
        self.silent = True
        self._out.clear()

    def begin(self) -> list[Id]:
        """A connection has said all that it wants; nothing has been reported to it.

        Returns the exports that were dropped before it and of which nobody needs to hear.
        """
        self.silent = False
        self._anew = True
        self._guards.clear()
        dropped = list(self._dropped)
        self._dropped.clear()
        return dropped

    def exported(self, dataflow: Dataflow) -> None:
        """There are the exports of a dataflow, from its as-of on."""
        for export in dataflow.exports:
            if isinstance(export, IndexExport | CollectionExport):
                self._guards[export.id] = ReportedFrontiers.since(export.id, dataflow.as_of)

    def dropped(self, id: Id) -> bool:
        """An export is dropped; whether its end has still to be told."""
        if id in self._guards:
            self._dropped[id] = None
            return True
        return False

    def answer(self, answers: Iterable[Response]) -> None:
        """Tell some answers."""
        if not self.silent:
            self._out.extend(answers)

    def due(self, moved: bool, busy: bool, interval: int | None) -> bool:
        """Whether frontiers are to be reported: at once, or now and then while there is other work.

        moved: some may have risen. To a connection that has heard none, all are told.
        """
        wait = INTERVAL if interval is None else interval
        idle = not busy or self._clock() - self._reported_at >= wait
        return not self.silent and (moved or self._anew) and idle

    def report(self, reached: Mapping[Id, Reached]) -> list[Id]:
        """Report what has risen. Returns what was dropped and whose end has been told: to be forgotten."""
        self._reported_at = self._clock()
        self._anew = False
        for id, guard in self._guards.items():
            found = reached.get(id)
            told = None if found is None else guard.reached(found)
            if told is not None:
                self._out.append(told)
        ended = [id for id in self._dropped if self._guards[id].ended]
        for id in ended:
            del self._dropped[id], self._guards[id]
        return ended

    def take(self) -> list[Response]:
        """What is to be sent now."""
        out, self._out = self._out, []
        return out
