"""Assume ordered: the order in which rows come is declared to mean something."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from penstock.graph.facts import Facts, Port
from penstock.graph.node import ALTERABLE, Operator


@dataclass(frozen=True, slots=True)
class AssumeOrdered(Operator):
    """The same rows, as an ordered stream: for operators that read order.

    nondet: why it is right to read the order in which rows happen to come. It depends
            on the cut into ticks, so a flow whose ticks are not given must say it.

    A tick without rows answers nothing.

    >>> from penstock.testing import show
    >>> why = "who comes first is served first"
    >>> show(lambda a, b: a.union(b).assume_ordered(nondet=why), a=["ann"], b=["bob"])
    + 'ann'
    + 'bob'
    """

    kind: ClassVar[str] = "assume_ordered"
    linear: ClassVar[bool] = True
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=True, det=inputs[0].det and self.nondet is None)

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return "The order in which rows come depends on which of them come in one tick."

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""
