"""Distinct: a row is emitted with its first copy and retracted with its last."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lowering.row_code import Row, tuple_source
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, step_for
from headrace.operators.distinct import Distinct
from headrace.operators.lifetime import Lifetime
from headrace.operators.unique import Unique

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


class AppendDistinctStep(Step):
    """Distinct over an append stream, which emits the first copy at once.

    of_a_tick: the state is dropped at the end of the tick.
    """

    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter, *, of_a_tick: bool = False) -> None:
        super().__init__(node, writer)
        self.of_a_tick = of_a_tick

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.copies", transient=self.of_a_tick),)

    def consume(self, port: int, row: Row) -> None:
        writer, schema = self.writer, self.node.schema
        key = writer.entry(schema, row.columns)
        if key == tuple_source(row.columns) and row.whole is not None:
            key, first = row.whole, row
        else:
            if not key.isidentifier():
                name = writer.fresh("row")
                self.code.line(f"{name} = {key}")
                key = name
            first = Row((key,))
        with self.code.block(f"if {self.slot_getter('copies')}({key}) is None:"):
            self.code.line(f"{self.slot('copies')}[{key}] = 1")
            if len(schema.fields) > 1 and first is not row:
                # Keys are canonical (one zero, one NaN), and so is what leaves.
                first = Row(writer.unpack(schema, key), key)
            self.emit(first)


class TableDistinctStep(Step):
    """Distinct over a table, which counts copies and emits crossings of 0 per tick."""

    keeps_state = True
    consolidates = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.before = writer.node_variable("before", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.copies"),)

    def begin(self) -> None:
        self.code.line(f"{self.before} = {{}}")

    def consume(self, port: int, row: Row) -> None:
        key = self.writer.fresh("row")
        self.code.line(f"{key} = {self.writer.row_key(self.node.schema, row.columns)}")
        self.state("copies").add_count(key, row.copies, self.before)

    def finish(self) -> None:
        writer = self.writer
        key, old, new = writer.fresh("row"), writer.fresh("old"), writer.fresh("new")
        with self.code.block(f"for {key}, {old} in {self.before}.items():"):
            self.code.line(f"{new} = {self.slot_getter('copies')}({key}) or 0")
            columns = writer.unpack(self.node.schema, key)
            with self.code.block(f"if {new} > 0 >= {old}:"):
                self.emit(Row(columns, key, "1"))
            with self.code.block(f"elif {old} > 0 >= {new}:"):
                self.emit(Row(columns, key, "-1"))


@step_for.register(Distinct)
@step_for.register(Unique)
def _distinct(operator: Distinct | Unique, node: Node, writer: StepWriter) -> Step:
    if operator.lifetime is Lifetime.TICK:
        return AppendDistinctStep(node, writer, of_a_tick=True)
    return distinct_step(node, writer)


def distinct_step(node: Node, writer: StepWriter) -> Step:
    """Choose the step of distinct; append streams have a cheaper one."""
    if writer.is_append(node.inputs[0]):
        return AppendDistinctStep(node, writer)
    return TableDistinctStep(node, writer)
