"""Responses of a replica to its controller: answers at once, frontiers as they advance.

Each frontier starts at the as-of or later, only advances, and ends once. Controllers release read holds based
on reports, so a regressing frontier, or one of a dropped export, would be worse than none.
Source: the compute protocol of Materialize, its reported frontiers (reference).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from headrace.compute.frontier import END, Frontier
from headrace.compute.protocol.dataflow import CollectionExport, Dataflow, Id, IndexExport
from headrace.compute.protocol.responses import Frontiers, Response
from headrace.compute.replica.runtime import ReachedFrontiers


@dataclass(frozen=True, slots=True)
class NotReported:
    """Guard before the first report, which must be at `lower` or later.

    >>> NotReported(Frontier(5)).allows(Frontier(4)), NotReported(Frontier(5)).allows(END)
    (False, True)
    """

    lower: Frontier

    def allows(self, frontier: Frontier) -> bool:
        return self.lower <= frontier


@dataclass(frozen=True, slots=True)
class Reported:
    """Guard after a report of `frontier`: only later ones may follow, and none after END.

    >>> Reported(Frontier(5)).allows(Frontier(5)), Reported(END).allows(END)
    (False, False)
    """

    frontier: Frontier

    def allows(self, frontier: Frontier) -> bool:
        return self.frontier < frontier


Guard: TypeAlias = NotReported | Reported


class HasReached(Protocol):
    """Object with an export's frontiers, such as `replica.runtime.ReachedFrontiers`."""

    @property
    def write(self) -> Frontier: ...
    @property
    def input(self) -> Frontier: ...
    @property
    def output(self) -> Frontier: ...


@dataclass(slots=True)
class ReportedFrontiers:
    """Guards of one index or collection export.

    >>> reported = ReportedFrontiers.since("u1", Frontier(5))
    >>> reported.advance(write=Frontier(7), input=Frontier(9), output=Frontier(4))
    Frontiers(id='u1', write=Frontier(time=7), input=Frontier(time=9), output=None)
    >>> reported.advance(write=Frontier(7), input=Frontier(8), output=Frontier(4))
    """

    id: Id
    write: Guard
    input: Guard
    output: Guard

    @classmethod
    def since(cls, id: Id, as_of: Frontier) -> ReportedFrontiers:
        """Create the guards of an export created or kept at `as_of`, before any report."""
        return cls(id, NotReported(as_of), NotReported(as_of), NotReported(as_of))

    @property
    def ended(self) -> bool:
        """Return whether END of each kind was reported, so that nothing may follow."""
        return self.write == self.input == self.output == Reported(END)

    def advance(self, *, write: Frontier, input: Frontier, output: Frontier) -> Frontiers | None:
        """Report the frontiers allowed now; None if there are none."""
        reported = Frontiers(
            self.id,
            write if self.write.allows(write) else None,
            input if self.input.allows(input) else None,
            output if self.output.allows(output) else None,
        )
        if reported == Frontiers(self.id):
            return None
        self.write = _after(self.write, reported.write)
        self.input = _after(self.input, reported.input)
        self.output = _after(self.output, reported.output)
        return reported

    def report_reached(self, reached: HasReached) -> Frontiers | None:
        """Report the frontiers of a runtime, as `advance` does."""
        return self.advance(write=reached.write, input=reached.input, output=reached.output)

    def report_end(self) -> Frontiers | None:
        """Report END of each kind that has not ended."""
        return self.advance(write=END, input=END, output=END)


def _after(guard: Guard, reported: Frontier | None) -> Guard:
    return guard if reported is None else Reported(reported)


INTERVAL = 25
"""Default milliseconds between two reports of frontiers while there is other work."""


class Reporter:
    """Responses on the current connection. Silent until `begin`. clock: milliseconds."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self.silent = True
        self._clock = clock
        self._out: list[Response] = []
        self._guards: dict[Id, ReportedFrontiers] = {}
        self._dropped: dict[Id, None] = {}
        self._reported_at = 0
        self._anew = False

    def silence(self) -> None:
        """Discard unsent responses because the connection has ended."""
        self.silent = True
        self._out.clear()

    def begin(self) -> list[Id]:
        """Begin reporting on a connection whose initial commands are complete.

        Returns the exports that were dropped earlier, whose end need not be reported.
        """
        self.silent = False
        self._anew = True
        self._guards.clear()
        dropped = list(self._dropped)
        self._dropped.clear()
        return dropped

    def add_exports(self, dataflow: Dataflow) -> None:
        """Start reporting a dataflow's exports from its as-of on."""
        for export in dataflow.exports:
            if isinstance(export, IndexExport | CollectionExport):
                self._guards[export.id] = ReportedFrontiers.since(export.id, dataflow.as_of)

    def record_dropped(self, id: Id) -> bool:
        """Record a dropped export. Returns whether its end has still to be reported."""
        if id in self._guards:
            self._dropped[id] = None
            return True
        return False

    def queue_answers(self, answers: Iterable[Response]) -> None:
        """Queue answers."""
        if not self.silent:
            self._out.extend(answers)

    def is_due(self, moved: bool, busy: bool, interval: int | None) -> bool:
        """Return whether frontiers are due: always when idle, periodically while there is other work.

        moved: whether some frontiers may have risen. A new connection gets all of them.
        """
        wait = INTERVAL if interval is None else interval
        idle = not busy or self._clock() - self._reported_at >= wait
        return not self.silent and (moved or self._anew) and idle

    def report(self, reached: Mapping[Id, ReachedFrontiers]) -> list[Id]:
        """Report advanced frontiers. Returns the dropped exports whose end is reported, to be forgotten."""
        self._reported_at = self._clock()
        self._anew = False
        for id, guard in self._guards.items():
            found = reached.get(id)
            reported = None if found is None else guard.report_reached(found)
            if reported is not None:
                self._out.append(reported)
        ended = [id for id in self._dropped if self._guards[id].ended]
        for id in ended:
            del self._dropped[id], self._guards[id]
        return ended

    def take_responses(self) -> list[Response]:
        """Take the queued responses."""
        out, self._out = self._out, []
        return out
