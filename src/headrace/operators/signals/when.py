"""When operator: the values of a signal while a condition is true."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.operators.signals.signal_operator import SignalOperator

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


@dataclass(frozen=True, slots=True)
class When(SignalOperator):
    """The value of `value` when it fires while `condition`, as settled in this tick, is true.

    A firing of the condition alone does not fire it.

    >>> import headrace as hr
    >>> flow = hr.Flow("large changes")
    >>> a = flow.signal("a", int)
    >>> flow.sink("large", a.filter(abs(a - a.delay(1, init=0)) > 2))
    >>> list(hr.Engine(flow).replay(a=[1, 5, 6, 2])["large"])
    [(1, 5), (3, 2)]
    """

    kind: ClassVar[str] = "when"
    plan_name: ClassVar[str | None] = "signal.when"

    def ports(self) -> tuple[Port, ...]:
        return (Port("value"), Port("condition"))

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def triggers(self) -> tuple[int, ...]:
        return (0,)

    def may_be_silent(self) -> bool:
        return True
