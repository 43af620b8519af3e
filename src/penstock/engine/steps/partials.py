"""Partial operators: what they answer of a piece of a tick, and who merges it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.engine.partials import MergedAggregate, PartialAggregate, PartialTopK
from penstock.engine.row_codegen import Row
from penstock.engine.slot import Slot
from penstock.engine.steps.aggregate import AggregateStep, group_of, keys_of
from penstock.engine.steps.group import FIRST_FIELD, ROWS, Group
from penstock.engine.steps.step import Step, step_for
from penstock.engine.steps.top_k import TopKStep, thaw_group

if TYPE_CHECKING:
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import Node


class PartialAggregateStep(Step):
    """`touched`: the list of each group of this tick, which is forgotten at its end."""

    keeps_state = True
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter, operator: PartialAggregate) -> None:
        super().__init__(node, writer)
        self.keys = keys_of(operator.of)
        self.schema = writer.input_schema(node, 0)
        self.touched = writer.named("touched", node.id)
        self.group = group_of(operator.of, node, writer)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def consume(self, port: int, row: Row) -> None:
        writer, code = self.writer, self.code
        key, group = writer.fresh("key"), writer.fresh("group")
        writer.assign_key(key, self.keys, self.schema, row.columns)
        code.line(f"{group} = {self.touched}.get({key})")
        with code.block(f"if {group} is None:"):
            code.line(f"{group} = {self.touched}[{key}] = {self.group.empty}")
        self.group.add(group, row)

    def finish(self) -> None:
        key, group = self.writer.fresh("key"), self.writer.fresh("group")
        keys = len(self.keys)
        fields = len(self.node.schema.fields) - keys - 1
        columns = [key] if keys == 1 else [f"{key}[{i}]" for i in range(keys)]
        columns += [f"{group}[{ROWS}]", *(f"{group}[{FIRST_FIELD + i}]" for i in range(fields))]
        with self.code.block(f"for {key}, {group} in {self.touched}.items():"):
            self.emit(Row(tuple(columns), None, "1"))


class MergedAggregateStep(AggregateStep):
    """An aggregate whose rows are lists of groups, each of a piece of the rows."""

    def __init__(self, node: Node, writer: StepWriter, operator: MergedAggregate) -> None:
        aggregations = [aggregation for _, aggregation in operator.of.aggregations]
        group = Group(writer, operator.rows, aggregations, appends=operator.appends)
        keys = tuple(expr for _, expr in operator.keys)
        super().__init__(node, writer, keys, operator.of.lifetime, group)

    def fold(self, group: str, row: Row) -> None:
        self.group.merge(group, row.columns[len(self.keys) :])


class CandidatesStep(TopKStep):
    """The first rows of each group, of a tick's rows alone."""

    def __init__(self, node: Node, writer: StepWriter, operator: PartialTopK) -> None:
        super().__init__(node, writer, operator.of)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.groups", thaw_group, transient=True),)


@step_for.register(PartialAggregate)
def _(operator: PartialAggregate, node: Node, writer: StepWriter) -> Step:
    return PartialAggregateStep(node, writer, operator)


@step_for.register(MergedAggregate)
def _(operator: MergedAggregate, node: Node, writer: StepWriter) -> Step:
    return MergedAggregateStep(node, writer, operator)


@step_for.register(PartialTopK)
def _(operator: PartialTopK, node: Node, writer: StepWriter) -> Step:
    return CandidatesStep(node, writer, operator)
