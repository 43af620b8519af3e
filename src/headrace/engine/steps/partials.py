"""Steps of partial operators: partial results for chunks of a tick, and their merge."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.partial_operators import (
    MergedAggregate,
    MergedWindow,
    PartialAggregate,
    PartialTopK,
    PartialWindow,
)
from headrace.lowering.row_code import MappingCode, Row, key_columns
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step, step_for
from headrace.operators.aggregate.accumulator import Group
from headrace.operators.aggregate.operator import AggregateStep, group_keys, group_writer
from headrace.operators.event_time.grid_windows import ClosedWindowStep, GridStep, UpdatedWindowStep
from headrace.operators.event_time.window import Emit
from headrace.operators.event_time.window_shapes import Grid
from headrace.operators.top_k import TopKStep

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


@register_step(PartialAggregate)
class PartialAggregateStep(Step):
    """Partial aggregate. `touched`: each group's list for this tick, dropped at its end."""

    operator: PartialAggregate
    keeps_state = True
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.keys = group_keys(self.operator.of)
        self.schema = self.input_schema()
        self.touched = writer.node_variable("touched", node.id)
        self.group = group_writer(self.operator.of, node, writer)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def consume(self, port: int, row: Row) -> None:
        key, group = self.writer.fresh("key"), self.writer.fresh("group")
        self.writer.assign_key(key, self.keys, self.schema, row.columns)
        MappingCode(self.writer, self.touched).get_or_add(group, key, self.group.empty)
        self.group.add(group, row)

    def finish(self) -> None:
        key, group = self.writer.fresh("key"), self.writer.fresh("group")
        with self.code.block(f"for {key}, {group} in {self.touched}.items():"):
            columns = (*key_columns(key, len(self.keys)), *self.group.partial_columns(group))
            self.emit(Row(columns, None, "1"))


def merged_group_writer(operator: MergedAggregate, writer: StepWriter) -> Group:
    """Create the group writer of an aggregate over partial groups."""
    aggregations = [aggregation for _, aggregation in operator.of.aggregations]
    return Group(writer, operator.rows, aggregations, appends=operator.appends)


class MergedAggregateStep(AggregateStep):
    """Aggregate over partial groups, each covering a chunk of the rows."""

    def __init__(self, node: Node, writer: StepWriter, operator: MergedAggregate) -> None:
        keys = tuple(expr for _, expr in operator.keys)
        group = merged_group_writer(operator, writer)
        super().__init__(node, writer, keys, operator.of.lifetime, group)

    def fold(self, group: str, row: Row) -> None:
        self.group.merge_partial(group, row.columns[len(self.keys) :])


class PartialTopKStep(TopKStep):
    """Top-k of each group over a tick's rows only."""

    def __init__(self, node: Node, writer: StepWriter, operator: PartialTopK) -> None:
        super().__init__(node, writer)
        self.operator = operator.of

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.groups", transient=True),)


class PartialWindowStep(GridStep):
    """Partial window. `sums`: (key, slice) -> the group's list, dropped at the end of the tick."""

    def __init__(self, node: Node, writer: StepWriter, operator: PartialWindow) -> None:
        assert isinstance(operator.of.shape, Grid), "only windows on a grid have slices"
        super().__init__(node, writer, replace(operator.of, emit=Emit.CLOSE), operator.of.shape)
        self._sums = writer.node_variable("sums", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def begin(self) -> None:
        super().begin()
        self.code.line(f"{self._sums} = {{}}")

    def fold(self, key: str, time: str, row: Row) -> None:
        entry, group = self.writer.fresh("entry"), self.writer.fresh("group")
        self.code.line(f"{entry} = ({key}, {self.start})")
        MappingCode(self.writer, self._sums).get_or_add(group, entry, self.group.empty)
        self.group.add(group, row)

    def finish(self) -> None:
        key, start, group = (self.writer.fresh(name) for name in ("key", "start", "group"))
        keys = key_columns(key, len(self.operator.keys))
        with self.code.block(f"for ({key}, {start}), {group} in {self._sums}.items():"):
            self.emit(Row((*keys, start, *self.group.partial_columns(group))))


class MergedClosedWindowStep(ClosedWindowStep):
    """Windows over partial groups, each covering rows of a slice."""

    def add(self, group: str, row: Row) -> None:
        self.group.merge_partial(group, row.columns[len(self.operator.keys) + 1 :])


class MergedUpdatedWindowStep(UpdatedWindowStep):
    """Updated windows over partial groups, each covering rows of a slice."""

    def add(self, group: str, row: Row) -> None:
        self.group.merge_partial(group, row.columns[len(self.operator.keys) + 1 :])


@step_for.register(MergedAggregate)
def _(operator: MergedAggregate, node: Node, writer: StepWriter) -> Step:
    return MergedAggregateStep(node, writer, operator)


@step_for.register(PartialTopK)
def _(operator: PartialTopK, node: Node, writer: StepWriter) -> Step:
    return PartialTopKStep(node, writer, operator)


@step_for.register(PartialWindow)
def _(operator: PartialWindow, node: Node, writer: StepWriter) -> Step:
    return PartialWindowStep(node, writer, operator)


@step_for.register(MergedWindow)
def _(operator: MergedWindow, node: Node, writer: StepWriter) -> Step:
    assert isinstance(operator.of.shape, Grid), "only windows on a grid have slices"
    aggregations = tuple(aggregation for _, aggregation in operator.of.aggregations)
    group = Group(writer, operator.rows, aggregations, appends=True)
    step = MergedClosedWindowStep if operator.of.emit is Emit.CLOSE else MergedUpdatedWindowStep
    return step(node, writer, operator.over_slices, operator.of.shape, group)
