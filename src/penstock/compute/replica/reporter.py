"""Responses of a replica to its controller: answers at once, frontiers as they rise.

Each frontier rises, starts at the as-of or above, and ends once: a controller releases read holds by what is
reported, so a frontier that goes back, or one of an export that was dropped, is worse than none.
Source: the compute protocol of Materialize, its reported frontiers (reference).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.compute.frontier import END, Frontier
from penstock.compute.protocol.dataflow import CollectionExport, Dataflow, Id, IndexExport
from penstock.compute.protocol.responses import Frontiers, Response
from penstock.compute.replica.runtime import Reached


@dataclass(frozen=True, slots=True)
class NotReported:
    """Nothing has been told. The first to be told is `lower` or later.

    >>> NotReported(Frontier(5)).allows(Frontier(4)), NotReported(Frontier(5)).allows(END)
    (False, True)
    """

    lower: Frontier

    def allows(self, frontier: Frontier) -> bool:
        return self.lower <= frontier


@dataclass(frozen=True, slots=True)
class Reported:
    """`frontier` has been told; only a later one may follow, after END none.

    >>> Reported(Frontier(5)).allows(Frontier(5)), Reported(END).allows(END)
    (False, False)
    """

    frontier: Frontier

    def allows(self, frontier: Frontier) -> bool:
        return self.frontier < frontier


Guard: TypeAlias = NotReported | Reported


class HasReached(Protocol):
    """How far an export has come, of each kind (`replica.runtime.Reached`)."""

    @property
    def write(self) -> Frontier: ...
    @property
    def input(self) -> Frontier: ...
    @property
    def output(self) -> Frontier: ...


@dataclass(slots=True)
class ReportedFrontiers:
    """The guards of one index or collection export.

    >>> told = ReportedFrontiers.since("u1", Frontier(5))
    >>> told.advance(write=Frontier(7), input=Frontier(9), output=Frontier(4))
    Frontiers(id='u1', write=Frontier(time=7), input=Frontier(time=9), output=None)
    >>> told.advance(write=Frontier(7), input=Frontier(8), output=Frontier(4))
    """

    id: Id
    write: Guard
    input: Guard
    output: Guard

    @classmethod
    def since(cls, id: Id, as_of: Frontier) -> ReportedFrontiers:
        """Nothing is told yet: of an export that was created or kept at `as_of`."""
        return cls(id, NotReported(as_of), NotReported(as_of), NotReported(as_of))

    @property
    def ended(self) -> bool:
        """Whether END was told of each kind: nothing more may be told."""
        return self.write == self.input == self.output == Reported(END)

    def advance(self, *, write: Frontier, input: Frontier, output: Frontier) -> Frontiers | None:
        """What of this may be told now, and is taken for told; None where there is nothing."""
        told = Frontiers(
            self.id,
            write if self.write.allows(write) else None,
            input if self.input.allows(input) else None,
            output if self.output.allows(output) else None,
        )
        if told == Frontiers(self.id):
            return None
        self.write = _after(self.write, told.write)
        self.input = _after(self.input, told.input)
        self.output = _after(self.output, told.output)
        return told

    def reached(self, reached: HasReached) -> Frontiers | None:
        """`advance`, with what a runtime says."""
        return self.advance(write=reached.write, input=reached.input, output=reached.output)

    def dropped(self) -> Frontiers | None:
        """END of each kind of which it was not told."""
        return self.advance(write=END, input=END, output=END)


def _after(guard: Guard, told: Frontier | None) -> Guard:
    return guard if told is None else Reported(told)


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
