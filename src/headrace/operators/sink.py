"""Sink operator: emit consolidated changes per tick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import ANYWHERE, Placement, Port
from headrace.operators.column_arguments import ANY_VALUE
from headrace.operators.signals.signal_operator import SignalOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns
    from headrace.graph.operator_declarations import Unservable


@dataclass(frozen=True, slots=True)
class Sink(Operator):
    """The changes of a stream, consolidated: per tick at most one per row, with non-zero weight.

    An append stream is emitted as plain rows: weight +1 each, copies one by one.

    >>> import headrace as hr
    >>> flow = hr.Flow("numbers")
    >>> flow.sink("out", flow.table("numbers", int))
    >>> hr.Engine(flow).tick(numbers=[hr.insert(1), hr.insert(2), hr.delete(1)])["out"]
    Changes([Change(row=2, weight=1)])
    """

    kind: ClassVar[str] = "sink"
    nets: ClassVar[bool] = True
    name: str

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        context.check_name(self.name)
        if isinstance(context.upstream(0), SignalOperator) and not context.input.scalar:
            return ANY_VALUE.fields
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return None

    def placement(self) -> Placement:
        return ANYWHERE

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)
