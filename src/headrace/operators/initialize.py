"""Initialize operator: one row in the first tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Placement, Port
from headrace.operators.column_arguments import ANY_VALUE

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class Initialize(Operator):
    """One row, `()`, in the first tick of a run. The operator itself starts no tick.

    A run resumed from a checkpoint has already had its first tick.

    >>> import headrace as hr
    >>> flow = hr.Flow("start")
    >>> flow.sink("started", flow.initialize())
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick()["started"]]
    [()]
    >>> [change.row for change in engine.tick()["started"]]
    []
    """

    kind: ClassVar[str] = "initialize"
    runs_first_tick: ClassVar[bool] = True

    def ports(self) -> tuple[Port, ...]:
        return ()

    def output(self, context: CheckContext) -> Columns:
        return ANY_VALUE.fields

    def unservable(self) -> Unservable | None:
        return None

    def at_most_one_row(self) -> bool:
        return True

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return Facts(bounded=True, append=True, ordered=True)

    def placement(self) -> Placement:
        return WHOLE
