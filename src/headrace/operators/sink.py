"""Sink operator: emit consolidated changes per tick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import Operator
from headrace.graph.operator_declarations import ANYWHERE, Placement, Port
from headrace.lowering.forms import apply_operator, lower_operator
from headrace.lowering.reference import Bag, Bags, Examples, answer_of_bags
from headrace.lowering.row_code import RowCode
from headrace.lowering.step import Step, register_step
from headrace.operators.column_arguments import ANY_VALUE
from headrace.operators.signals.signal_operator import SignalOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Unservable
    from headrace.lowering.forms import BatchSite


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
    examples: ClassVar[Examples] = {"sink": lambda x, y: y, "append": lambda x, y: x}
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


@apply_operator.register(Sink)
def _on_columns(operator: Sink, schema: Schema, append: bool, inputs: Sequence[ColumnStream]) -> ColumnStream:
    from headrace.columns.column_stream import check_plain, sum_weights

    (stream,) = inputs
    check_plain(schema)
    return stream if append else sum_weights(stream)


@lower_operator.register(Sink)
def _on_spark(operator: Sink, site: BatchSite) -> DataFrame:
    return site.inputs[0]


@answer_of_bags.register(Sink)
def _answer(operator: Sink, node: Node, inputs: Bags) -> Bag:
    return inputs[0][1]


@register_step(Sink)
class SinkStep(Step):
    """Step that collects a tick's changes for the region to return."""

    keeps_state = True
    has_result = True

    def begin(self) -> None:
        self.code.line(f"{self.writer.result_variable(self.node.id)} = []")

    def consume(self, port: int, row: RowCode) -> None:
        append = self.writer.is_append(self.node.id)
        self.code.line(f"{self.writer.result_variable(self.node.id)}.append({row.flat(append=append)})")

    def finish(self) -> None:
        if not self.writer.is_append(self.node.id) and not self.writer.is_consolidated(self.node.inputs[0]):
            name = self.writer.result_variable(self.node.id)
            self.code.line(f"{name} = x_consolidate({name})")
