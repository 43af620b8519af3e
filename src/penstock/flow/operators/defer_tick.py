"""Defer: rows are seen one tick later."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.graph.facts import Delay, Facts, Port
from penstock.graph.node import ALTERABLE, Operator


@dataclass(frozen=True, slots=True)
class DeferTick(Operator):
    """What enters in one tick leaves in the next, which starts for it if nothing else comes.

    It is the only operator that may stand in a cycle through a blocking input.
    What such a cycle answers depends on how the input is cut into ticks, so it
    must say why that is right: `nondet="..."`, or a flow with `ticks="given"`.

    >>> from penstock.testing import show
    >>> show(lambda numbers: numbers.union(numbers.defer_tick()), numbers=[1])
    + 1
    tick 2:
    + 1
    """

    kind: ClassVar[str] = "defer_tick"
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", delay=Delay.TICK),)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(bounded=False, det=inputs[0].det and self.nondet is None)

    def guard(self) -> str | None:
        return self.nondet

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""
