"""Generated code for what a large tick leaves to rows: the part behind its columnar operators."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.engine.columnar.partials import Partial
from penstock.engine.columnar.reduction import Groups
from penstock.engine.region_writer import RegionWriter
from penstock.engine.row_codegen import tuple_source
from penstock.engine.steps.accumulator import Target
from penstock.engine.steps.aggregate import AggregateStep, group_of, keys_of
from penstock.engine.steps.group import ROWS
from penstock.flow.operators.aggregate import Aggregate

if TYPE_CHECKING:
    from penstock.analysis import Analysis
    from penstock.engine.columnar.columnar_plan import ColumnarPlan
    from penstock.engine.constants import Constants
    from penstock.engine.plan import Consumers
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import FlowGraph, Node


class ReducedAggregateStep(AggregateStep):
    """An aggregate whose input are groups: a key, a number of rows, partial values."""

    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter, operator: Aggregate, groups: Groups) -> None:
        group = group_of(operator, node, writer)
        super().__init__(node, writer, keys_of(operator), operator.lifetime, group)
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
            code.line(f"{group}[{ROWS}] += {rows}")
            taken = 0
            for (_, partial), (_, at) in zip(self.groups.parts, self.group.accumulators(), strict=True):
                count = len(partial.types)
                self._merge(partial, Target(writer, group, at), tuple(values[taken : taken + count]))
                taken += count
        super().finish()

    def _merge(self, partial: Partial, to: Target, values: tuple[str, ...]) -> None:
        partial.merge(to, values)


class RestWriter(RegionWriter):
    """Writes the rest of a part as a function of its feeds."""

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
            if isinstance(feed.reduction, Groups):
                for node in (graph.nodes[n] for n in shape.rest):
                    if feed.source in node.inputs and isinstance(node.operator, Aggregate):
                        step = ReducedAggregateStep(node, self, node.operator, feed.reduction)
                        self._steps[node.id] = step
