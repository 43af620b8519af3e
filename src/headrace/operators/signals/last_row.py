"""Conversion from a stream to a signal: the last row of each tick."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import Facts, Need, Port
from headrace.operators.signals.signal_operator import ONE_INPUT, SignalOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


@dataclass(frozen=True, slots=True)
class LastRow(SignalOperator):
    """The last row of each tick that has rows.

    The last row of a tick depends on the cut into ticks, so a reason (`nondet=`) is required unless the ticks
    are part of the input. The signal does not fire in a tick without rows.

    Operators that read every value, such as a window, a scan or a stream, would miss the rows before the last
    one. If there are any, and no reason is given, more than one row in a tick raises `BadInput`.

    >>> import headrace as hr
    >>> flow = hr.Flow("the newest", ticks="given")
    >>> flow.sink("newest", flow.source("prices", float).latest() * 2)
    >>> list(hr.Engine(flow).tick(prices=[1.0, 3.0])["newest"])
    [Change(row=6.0, weight=1)]
    """

    kind: ClassVar[str] = "latest"
    plan_name: ClassVar[str | None] = "signal.last_row"
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a row that is taken back was the last one, too",
                "take rows of a stream that grows",
            ),
            Need(
                0,
                "ordered",
                "the last row of a tick is asked for",
                'say which order it is: assume_ordered(nondet="why rows come in order")',
            ),
        )

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(ordered=True, det=inputs[0].det and self.nondet is None)

    def guard(self) -> str | None:
        return self.nondet

    def depends_on_cut(self) -> str:
        return "It shows the last row of each tick, so where ticks end shows."

    def describe(self) -> str:
        return f"nondet: {self.nondet}" if self.nondet else ""
