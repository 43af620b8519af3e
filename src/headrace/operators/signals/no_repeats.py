"""No-repeats operator: drop consecutive equal values of a signal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.operators.signals.signal_operator import ONE_INPUT, SignalOperator

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


@dataclass(frozen=True, slots=True)
class NoRepeats(SignalOperator):
    """The values that differ from the previous one, starting with the first.

    Two values differ if they are not equal, or if one is a bool and the other a number, so True differs from
    1. NaN does not differ from NaN.

    >>> import headrace as hr
    >>> flow = hr.Flow("what changes")
    >>> flow.sink("new", flow.signal("a", int).changes())
    >>> list(hr.Engine(flow).replay(a=[1, 1, 2, 1])["new"])
    [(0, 1), (2, 2), (3, 1)]
    """

    kind: ClassVar[str] = "changes"
    plan_name: ClassVar[str | None] = "signal.no_repeats"

    def ports(self) -> tuple[Port, ...]:
        return ONE_INPUT

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def may_be_silent(self) -> bool:
        return True
