"""Sample operator: a signal's value when another fires."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.operators.signals.signal_operator import SignalOperator

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


@dataclass(frozen=True, slots=True)
class Sample(SignalOperator):
    """The current value of `value`, as settled in this tick, when `trigger` fires.

    A trigger before the first value is ignored.

    >>> import headrace as hr
    >>> flow = hr.Flow("prices at the bell")
    >>> price, bell = flow.signal("price", float), flow.signal("bell", bool)
    >>> flow.sink("seen", price.sample(bell))
    >>> list(hr.Engine(flow).replay([("bell", True), ("price", 1.5), ("price", 2.5), ("bell", True)])["seen"])
    [(3, 2.5)]
    """

    kind: ClassVar[str] = "sample"
    plan_name: ClassVar[str | None] = "signal.sample"

    def ports(self) -> tuple[Port, ...]:
        return (Port("value"), Port("trigger"))

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def triggers(self) -> tuple[int, ...]:
        return (1,)

    def may_be_silent(self) -> bool:
        return True
