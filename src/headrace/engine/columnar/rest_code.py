"""Generated code of large ticks: what is left to rows in a part, and how state in columns reads in rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.engine.loops.semi_naive import write_rounds
from headrace.engine.region_writer import RegionWriter
from headrace.lowering.forms import reduced_step_for
from headrace.lowering.row_code import tuple_source

if TYPE_CHECKING:
    from headrace.analysis import Analysis
    from headrace.engine.columnar.columnar_plan import ColumnarPlan
    from headrace.engine.columnar.loop_rounds import LoopPlan
    from headrace.graph.node import Consumers, FlowGraph
    from headrace.lowering.generated_source import Constants


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
            for node in map(graph.nodes.__getitem__, shape.rest if feed.reduction is not None else ()):
                if feed.source in node.inputs:
                    step = reduced_step_for(node.operator, feed.reduction, node, self)
                    if step is not None:
                        self._steps[node.id] = step
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
