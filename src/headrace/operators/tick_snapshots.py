"""Operators between whole ticks: all rows again in each tick, and rows in excess of the last tick."""

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


# --- every-tick operator: emit all current rows again in each tick --------------------------------


@dataclass(frozen=True, slots=True)
class EveryTick(Operator):
    """On each tick, all current rows of the input, as plain rows in order of first arrival.

    It emits rows in every tick that runs, even one without input, but starts no tick; the cost of a tick is
    proportional to all rows so far. A retracted row is no longer emitted, and no output is ever retracted.
    Within a loop, the first round emits all rows, and later rounds only the new ones.

    nondet: reason why results may depend on the cut into ticks: a row is emitted once per tick.

    >>> import headrace as hr
    >>> flow = hr.Flow("repeated")
    >>> flow.sink("shown", flow.source("numbers", int).every_tick(nondet="a screen is drawn per tick"))
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick(numbers=[1, 2])["shown"]]
    [1, 2]
    >>> [change.row for change in engine.tick(numbers=[3])["shown"]]
    [1, 2, 3]
    >>> [change.row for change in engine.tick()["shown"]]
    [1, 2, 3]
    """

    kind: ClassVar[str] = "every_tick"
    runs_each_tick: ClassVar[bool] = True
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return LATER

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(bounded=False, append=True, det=rows.det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "what was shown in an earlier round of the loop is not taken back",
                "feed the loop from streams that only grow",
                only_in_loop=True,
            ),
        )

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return "It emits its rows once per tick, so the answer shows the number of ticks."

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""


# --- multiset-delta operator: rows of this tick in excess of the previous tick --------------------


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
