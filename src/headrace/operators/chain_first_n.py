"""Chain-first-n operator: the first rows of several streams, taken in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port, meet
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class ChainFirstN(Operator):
    """The first `count` rows of each tick, from the inputs in port order.

    Every input is complete before the next one is read. Rows beyond `count` are dropped. A tick without rows
    emits nothing.

    nondet: reason why results may depend on the cut into ticks.

    >>> from headrace.testing import show
    >>> why = "three offers a day are shown"
    >>> show(lambda a, b: a.chain_first_n(3, b, nondet=why), a=[1, 2], b=[3, 4])
    + 1
    + 2
    + 3
    """

    kind: ClassVar[str] = "chain_first_n"
    count: int
    inputs: int
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        why = "its rows come before those of the next input"
        first = (Port(f"input {at}", blocking=True, why=why) for at in range(self.inputs - 1))
        return (*first, Port(f"input {self.inputs - 1}"))

    def output(self, context: CheckContext) -> Columns:
        context.require(self.count >= 0, "a count is below zero")
        return context.common_columns()

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def placement(self) -> Placement:
        return WHOLE

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(append=True, ordered=True, det=both.det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
        return tuple(need for port in range(self.inputs) for need in _needs(port))

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return "Each tick is answered for itself, so which rows are first in it decides."

    def describe(self) -> str:
        return f"{self.count} in each tick"


def _needs(port: int) -> tuple[Need, ...]:
    return (
        Need(
            port,
            "append",
            "what a tick answered is not taken back",
            "take the first rows of a stream that only grows; top_k() keeps the first rows of a table",
        ),
        Need(
            port,
            "ordered",
            "it takes the first rows",
            "declare the order in which rows come to be the one that is meant: .assume_ordered(nondet=...)",
        ),
    )
