"""Generated code of large ticks: what is left to rows in a part, and how state in columns reads in rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.columnar.pre_reduction import GroupedRows
from headrace.engine.loops.semi_naive import write_rounds
from headrace.engine.partial_operators import PartialAggregate, PartialWindow
from headrace.engine.region_writer import RegionWriter
from headrace.lowering.row_code import RowCode, tuple_source
from headrace.lowering.step import Step
from headrace.operators.aggregate.accumulator import ROWS, Target
from headrace.operators.aggregate.operator import Aggregate, AggregateStep, group_keys, group_writer
from headrace.operators.event_time.grid_windows import (
    ClosedWindowStep,
    KeptGridStep,
    UpdatedWindowStep,
    WindowStep,
)
from headrace.operators.event_time.session_windows import SessionStep
from headrace.operators.event_time.window import Emit, Window
from headrace.operators.event_time.window_shapes import Grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.analysis import Analysis
    from headrace.engine.columnar.columnar_plan import ColumnarPlan
    from headrace.engine.columnar.loop_rounds import LoopPlan
    from headrace.graph.node import Consumers, FlowGraph, Node
    from headrace.lowering.generated_source import Constants
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.aggregate.accumulator import Group


class ReducedAggregateStep(AggregateStep):
    """Aggregate over reduced input: key, row count and partial values of each group."""

    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter, operator: Aggregate, groups: GroupedRows) -> None:
        group = group_writer(operator, node, writer)
        super().__init__(node, writer, group_keys(operator), operator.lifetime, group)
        self.groups = groups

    def finish(self) -> None:
        writer, code = self.writer, self.code
        names = [writer.fresh("part") for _ in self.groups.types]
        width = len(self.groups.keys)
        keys, rows, values = names[:width], names[width], names[width + 1 :]
        slot, get = writer.slot(self.node.id, "groups"), writer.slot_get(self.node.id, "groups")
        key, group = writer.fresh("key"), writer.fresh("group")
        with code.block(f"for {', '.join(names)}, in {writer.buffer(self.node.inputs[0])}:"):
            code.line(f"{key} = {keys[0] if width == 1 else tuple_source(keys) if keys else '()'}")
            code.line(f"{group} = {get}({key})")
            with code.block(f"if {group} is None:"):
                code.line(f"{group} = {slot}[{key}] = {self.group.empty}")
            code.line(f"{self.touched}[{key}] = {group}")
            merge_parts(writer, self.groups, self.group, group, (rows, *values))
        super().finish()


def merge_parts(
    writer: StepWriter, groups: GroupedRows, of: Group, group: str, values: Sequence[str]
) -> None:
    """Write code that adds a row count and partial values to the list in the variable `group`."""
    writer.code.line(f"{group}[{ROWS}] += {values[0]}")
    taken = 1
    for (_, partial), (_, at) in zip(groups.parts, of.accumulators(), strict=True):
        count = len(partial.types)
        partial.merge(Target(writer, group, at), tuple(values[taken : taken + count]))
        taken += count


class ReducedWindowStep(WindowStep):
    """Windows over reduced input: key, times, row count and partial values."""

    groups: GroupedRows

    def consume_buffer(self, port: int) -> None:
        if port:
            super().consume_buffer(port)
            return
        writer = self.writer
        names = tuple(writer.fresh("part") for _ in self.groups.types)
        width, timed = len(self.groups.keys), len(self.groups.key_types)
        with self.code.block(f"for {', '.join(names)}, in {writer.buffer(self.node.inputs[0])}:"):
            key = writer.fresh("key")
            keys = names[:width]
            self.code.line(f"{key} = {keys[0] if width == 1 else tuple_source(keys) if keys else '()'}")
            self.take_reduced(key, names[width:timed], names[timed:])

    def take_reduced(self, key: str, times: Sequence[str], values: Sequence[str]) -> None:
        """Write code that adds a reduced row."""
        raise NotImplementedError


class ReducedSessionStep(ReducedWindowStep, SessionStep):
    """Sessions over reduced input, whose times are the first and the last one of rows in succession."""

    def take_reduced(self, key: str, times: Sequence[str], values: Sequence[str]) -> None:
        merge_parts(self.writer, self.groups, self.group, self.enter("enter_span", key, *times), values)


class ReducedGridStep(ReducedWindowStep, KeptGridStep):
    """Grid windows over reduced input, whose time is the start of a slice."""

    def take_reduced(self, key: str, times: Sequence[str], values: Sequence[str]) -> None:
        self.find_slice(times[0])
        self.fold(key, times[0], RowCode(tuple(values)))

    def add(self, group: str, row: RowCode) -> None:
        merge_parts(self.writer, self.groups, self.group, group, row.columns)


class ReducedClosedWindowStep(ReducedGridStep, ClosedWindowStep):
    """Windows over reduced input that are emitted when they close."""


class ReducedUpdatedWindowStep(ReducedGridStep, UpdatedWindowStep):
    """Windows over reduced input that are emitted as they change."""


class ReducedPartialStep(Step):
    """Partial aggregate or window over reduced input, which is its output."""

    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter, groups: GroupedRows) -> None:
        super().__init__(node, writer)
        self.groups = groups

    def finish(self) -> None:
        names = tuple(self.writer.fresh("part") for _ in self.groups.types)
        with self.code.block(f"for {', '.join(names)}, in {self.writer.buffer(self.node.inputs[0])}:"):
            self.emit(RowCode(names, None, "1"))


def _reduced_window(node: Node, writer: StepWriter, operator: Window) -> ReducedWindowStep:
    shape = operator.shape
    if not isinstance(shape, Grid):
        return ReducedSessionStep(node, writer, operator, shape)
    step = ReducedClosedWindowStep if operator.emit is Emit.CLOSE else ReducedUpdatedWindowStep
    return step(node, writer, operator, shape)


class RestWriter(RegionWriter):
    """Writer of a part's row-wise operators, as a function of their feeds."""

    def __init__(
        self,
        graph: FlowGraph,
        analysis: Analysis,
        shape: ColumnarPlan,
        consumers: Consumers,
        constants: Constants,
    ) -> None:
        part = replace(
            shape.part,
            function=f"{shape.part.function}_rest",
            nodes=shape.rest,
            inputs=tuple(feed.source for feed in shape.feeds),
            outputs=tuple(n for n in shape.part.outputs if n in shape.rest),
        )
        super().__init__(graph, analysis, part, consumers, constants)
        for feed in shape.feeds:
            if isinstance(feed.reduction, GroupedRows):
                for node in (graph.nodes[n] for n in shape.rest):
                    if feed.source not in node.inputs:
                        continue
                    if isinstance(node.operator, Aggregate):
                        step = ReducedAggregateStep(node, self, node.operator, feed.reduction)
                        self._steps[node.id] = step
                    elif isinstance(node.operator, Window):
                        reduced = _reduced_window(node, self, node.operator)
                        reduced.groups = feed.reduction
                        self._steps[node.id] = reduced
                    elif isinstance(node.operator, PartialAggregate | PartialWindow):
                        self._steps[node.id] = ReducedPartialStep(node, self, feed.reduction)
        self._stored = tuple(shape.stored.values())

    def write_readers(self) -> None:
        """Write the functions that entries of slots which lie in columns are completed with."""
        for plan in self._stored:
            plan.write_reader(self.graph.nodes[plan.node], self, reader_of(plan.node))


class LoopWriter(RegionWriter):
    """Writer of a loop as a function of a round and of the rows that its feedbacks hand out in it."""

    def __init__(
        self,
        graph: FlowGraph,
        analysis: Analysis,
        shape: ColumnarPlan,
        loop: LoopPlan,
        consumers: Consumers,
        constants: Constants,
    ) -> None:
        part = replace(
            shape.part,
            function=loop_function(shape.part.function, loop.nodes[0]),
            nodes=loop.nodes,
            inputs=loop.entering,
            outputs=loop.leaving,
        )
        super().__init__(graph, analysis, part, consumers, constants)
        self._loop = loop

    def write(self) -> None:
        loop, code = self._loop, self.code
        given = ", ".join(self.buffer(n) for n in loop.closing)
        with code.block(f"def {self.part.function}({self.round_variable(loop.nodes[0])}, {given}):"):
            for node in loop.entering:
                code.line(f"{self.buffer(node)} = ()")
            write_rounds(self, loop.nodes, self._steps, begun=True)
            code.line(f"return {tuple_source([self.buffer(n) for n in loop.leaving])}")


def loop_function(part: str, first: int) -> str:
    """Return the name of the function of a loop in a part. first: its first node."""
    return f"{part}_loop_{first}"


def reader_of(node: int) -> str:
    """Return the name of the function that entries of a node's slot are completed with."""
    return f"of_state_{node}"
