"""End-of-input operator: one row once sources have ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.expr.types import BOOL, Field
from headrace.graph.node import Operator
from headrace.graph.operator_declarations import ANYWHERE, Facts, Placement, Port
from headrace.operators.unservable import EVENT_TIME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable

VALUE = "value"
"""Name of the only column in a stream of watermarks."""


@dataclass(frozen=True, slots=True)
class EndOfInput(Operator):
    """One row in the tick in which all of `sources` have ended: `Engine.end()`, or the end of a run.

    Then their watermarks rise to the end of time, and every window closes.

    >>> import headrace as hr
    >>> from headrace import col
    >>> flow = hr.Flow("windows")
    >>> times = flow.source("times", int).watermark(col.value, lateness=2)
    >>> flow.sink("out", times.group_by(window=hr.tumbling(col.value, 10)).agg(n=hr.count()))
    >>> engine = hr.Engine(flow)
    >>> list(engine.tick(times=[1, 2, 3])["out"])
    []
    >>> [tuple(row) for row, _ in engine.end()["out"]]
    [(0, 10, 3)]
    """

    kind: ClassVar[str] = "end_of_input"
    gives_watermark: ClassVar[bool] = True
    sources: tuple[str, ...]

    def ports(self) -> tuple[Port, ...]:
        return ()

    def output(self, context: CheckContext) -> Columns:
        return (Field(VALUE, BOOL),)

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def placement(self) -> Placement:
        return ANYWHERE

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(ordered=True)

    def describe(self) -> str:
        return "of " + ", ".join(map(repr, self.sources))
