"""What frontiers a replica may report: each kind rises, starts at the as-of or above, and ends once.

A controller gives up read holds by what it is told, so a frontier that goes back, or one of something that
was dropped, is worse than none.
Source: the compute protocol of Materialize, its reported frontiers (reference).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

from penstock.compute.frontier import END, Frontier
from penstock.compute.protocol.dataflow import Id
from penstock.compute.protocol.responses import Frontiers


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
