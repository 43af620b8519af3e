"""Multiset-delta operator: rows of this tick in excess of the previous tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.operators.unservable import LATER

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class MultisetDelta(Operator):
    """For each row, as many copies as this tick has more than the previous one.

    As many first copies are left out as the previous tick had; the others keep their order. A tick without
    rows emits nothing, but counts as the previous tick of the next. After `every_tick` of an append stream,
    it emits the new rows.

    nondet: reason why results may depend on the cut into ticks.

    >>> import headrace as hr
    >>> flow = hr.Flow("news")
    >>> flow.sink("news", flow.source("seen", int).multiset_delta(nondet="a tick is a look around"))
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick(seen=[3, 4, 3])["news"]]
    [3, 4, 3]
    >>> [change.row for change in engine.tick(seen=[3, 5, 3, 3])["news"]]
    [5, 3]
    """

    kind: ClassVar[str] = "multiset_delta"
    runs_each_tick: ClassVar[bool] = True
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return LATER

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True, det=inputs[0].det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "it compares the rows of two ticks, and a tick that takes rows back has less than none",
                "let .every_tick(nondet=...) show the rows of the table in each tick",
            ),
        )

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return "It compares each tick with the one before, so where ticks end shows."

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""
