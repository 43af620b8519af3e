"""Defer-signal operator: hold rows back until another stream has a row."""

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
class DeferSignal(Operator):
    """All changes since the last signal, emitted in the tick of the next one.

    Any row of `signal` is a signal, which releases the rows of earlier ticks and of its own tick. Several
    signals in a tick count as one, and a signal without rows to release is used up. Rows retracted meanwhile
    are never emitted. Rows still held when a run ends are not emitted. Plain rows keep their order.

    nondet: reason why results may depend on the cut into ticks.

    >>> import headrace as hr
    >>> flow = hr.Flow("post")
    >>> letters, van = flow.source("letters", str), flow.source("van", str)
    >>> flow.sink("sent", letters.defer_signal(van, nondet="post leaves with the van"))
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick(letters=["a", "b"])["sent"]]
    []
    >>> [change.row for change in engine.tick(letters=["c"], van=["nine o'clock"])["sent"]]
    ['a', 'b', 'c']
    """

    kind: ClassVar[str] = "defer_signal"
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (
            Port("input", blocking=True, why="a signal releases all rows of its tick together"),
            Port("signal", blocking=True, why="whether rows are released is not known before"),
        )

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return LATER

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows, signal = inputs
        return rows.but(
            bounded=rows.bounded and signal.bounded, det=rows.det and signal.det and self.nondet is None
        )

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                1,
                "append",
                "a signal that was followed cannot be taken back",
                "signal by a stream that only grows",
            ),
        )

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return "A signal releases the rows that came by the end of its tick, so where ticks end shows."

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""
