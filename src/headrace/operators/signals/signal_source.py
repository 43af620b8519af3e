"""Source operator of signals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.operator_declarations import Port
from headrace.operators.signals.signal_operator import SignalOperator

if TYPE_CHECKING:
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns


@dataclass(frozen=True, slots=True)
class SignalSource(SignalOperator):
    """The values given to ticks under the source's name. The signal fires in ticks that have one.

    A value equal to the previous one also fires. The ticks are part of the input, because the time of a value
    and the values simultaneous with it matter.

    >>> import headrace as hr
    >>> flow = hr.Flow("sums")
    >>> a, b = flow.signal("a", float), flow.signal("b", float)
    >>> flow.sink("sum", a + b)
    >>> engine = hr.Engine(flow)
    >>> [list(engine.tick(**values)["sum"]) for values in ({"a": 1.0}, {"b": 2.0}, {"a": 3.0, "b": 4.0})]
    [[], [Change(row=3.0, weight=1)], [Change(row=7.0, weight=1)]]
    """

    kind: ClassVar[str] = "signal"
    plan_name: ClassVar[str | None] = "signal.source"
    begins_ticks: ClassVar[bool] = True
    name: str
    schema: Schema

    def ports(self) -> tuple[Port, ...]:
        return ()

    def output(self, context: CheckContext) -> Columns:
        context.check_name(self.name)
        context.require(self.schema == context.output, "the source has another type than its values")
        return self.schema.fields
