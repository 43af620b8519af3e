"""Writer that turns a region of a flow into one straight-line Python function.

Rows are pushed: a loop over a buffer contains the code of all later operators, up to the next buffer. A
stream has a buffer only if it has several readers, leaves the region, or enters an operator that reads whole
inputs, or if the code after it is long and would be written more than once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.loop_code import write_nested, write_rounds
from headrace.lowering.row_code import RowCode, tuple_source
from headrace.lowering.step import LoopStep, loop_step_for, step_for
from headrace.lowering.step_writer import StepWriter
from headrace.operators.feedback import RoundFeedbackStep
from headrace.operators.join.transient_pairs import RoundwiseLoopStep, may_see_transient_pairs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from headrace.analysis import Analysis
    from headrace.engine.flow_parts import CompiledPart
    from headrace.graph.node import Consumers, Edge, FlowGraph, Node
    from headrace.lowering.generated_source import Constants
    from headrace.lowering.slot import Slot
    from headrace.lowering.step import RowStep

# Python nests no more than 20 loops and 100 levels in one function; each operator may add a level.
_LONGEST_RUN = 12


class RegionWriter(StepWriter):
    """Writer that composes the steps of a part. slots: state of its operators."""

    def __init__(
        self,
        graph: FlowGraph,
        analysis: Analysis,
        part: CompiledPart,
        consumers: Consumers,
        constants: Constants,
        *,
        counting: bool = False,
    ) -> None:
        super().__init__(graph, analysis, part.nodes, consumers, constants, counting=counting)
        self.part = part
        self._steps = {n: self._step_for(graph.nodes[n]) for n in part.nodes}
        self._inlined = self._find_inlined()

    def _step_for(self, node: Node) -> RowStep:
        if node.id in self._nested:
            loop = self._loop_of[node.id]
            varies = [source in loop for source in node.inputs]
            step = loop_step_for(node.operator, node, self, varies)
            return RoundwiseLoopStep(step, varies) if may_see_transient_pairs(self, node, loop) else step
        return step_for(node.operator, node, self)

    # -- what a step asks about others -------------------------------------------------------------

    def emit(self, node: int, row: RowCode) -> None:
        if node in self.analysis.zeros.made:
            row = self._with_one_zero(self.graph.nodes[node].schema, row)
        edge = self._inlined.get(node)
        if edge is not None:
            self.count_activation(edge.target)
            row = self._as_taken(edge, row)
            with self.code.attribute_lines(edge.target, row.columns):
                self._steps[edge.target].consume(edge.port, row)
        elif node in self._nested:
            self.code.line(f"{self.buffer(node)}.append({tuple_source((*row.columns, row.copies, self.at))})")
        else:
            self.code.line(f"{self.buffer(node)}.append({row.flat(append=self.is_append(node))})")

    def inlined_edge(self, node: int) -> Edge | None:
        return self._inlined.get(node)

    def is_consolidated(self, node: int) -> bool:
        return node in self._steps and self._steps[node].consolidates

    def merges_equal_rows(self, node: int) -> bool:
        return self._steps[node].merges

    # -- the function ------------------------------------------------------------------------------

    @property
    def slots(self) -> tuple[Slot, ...]:
        return tuple(slot for step in self._steps.values() for slot in step.slots())

    def write(self) -> None:
        """Write the region as a function from lists of rows to lists of rows."""
        inputs = ", ".join(self.buffer(n) for n in self.part.inputs)
        with self.code.block(f"def {self.part.function}({inputs}):"):
            self._write_body()
            results = [self._outcome(n) for n in self.part.outputs]
            self.code.line(f"return {tuple_source(results) if results else '()'}")

    def write_tick(self, sources: Mapping[int, str], sinks: Mapping[int, str]) -> None:
        """Write a region that covers the whole flow as `tick(inputs)`: rows by source to rows by sink."""
        with self.code.block("def tick(inputs):"):
            for node in self.part.inputs:
                self.code.line(f"{self.buffer(node)} = inputs.get({sources[node]!r}, ())")
            self._write_body()
            self.code.line("made = {}")
            for node in self.part.outputs:
                with self.code.block(f"if {self._outcome(node)}:"):
                    self.code.line(f"made[{sinks[node]!r}] = {self._outcome(node)}")
            self.code.line("return made")

    def _write_body(self) -> None:
        self._begin()
        for group in self._in_turn():
            if len(group) == 1 and group[0] not in self._loop_of:
                self._steps[group[0]].write()
            else:
                write_loop = write_nested if group[0] in self._nested else write_rounds
                write_loop(self, group, self._steps)
            for node in group:
                if self.is_buffered(node) or self._steps[node].has_result:
                    self.write_count(self._outcome(node))
        if self._counting:
            for node in self.part.nodes:
                self.code.line(f"x_activations[{node}] += {self.node_variable('ran', node)}")

    def _outcome(self, node: int) -> str:
        return self.result_variable(node) if self._steps[node].has_result else self.buffer(node)

    def _begin(self) -> None:
        for node in self.part.nodes:
            with self.code.attribute_lines(node):
                if self._counting:
                    runs_each_tick = self.graph.nodes[node].operator.runs_each_tick
                    self.code.line(f"{self.node_variable('ran', node)} = {runs_each_tick}")
                # In a loop, both are done for each round.
                if node not in self._loop_of:
                    self._steps[node].write_start()

    def _in_turn(self) -> Iterator[tuple[int, ...]]:
        """Yield the nodes in order, with the nodes of a loop grouped."""
        done: set[int] = set()
        for node in self.part.nodes:
            if node not in done:
                group = tuple(self._loop_of.get(node, (node,)))
                done.update(group)
                yield group

    # -- what is inlined ---------------------------------------------------------------------------

    def _find_inlined(self) -> dict[int, Edge]:
        """Return the nodes whose only consumer is inlined at their output, with the edge to it."""
        inlined: dict[int, Edge] = {}
        ends_heavy: dict[int, bool] = {}
        run: dict[int, int] = {}
        for node in reversed(self.part.nodes):
            edges = self._handed_on(node)
            if len(edges) != 1 or not self._may_inline(edges[0]):
                continue
            target = self._steps[edges[0].target]
            heavy = target.heavy or ends_heavy.get(edges[0].target, False)
            if heavy and self._steps[node].sites > 1:
                continue
            length = 1 + run.get(edges[0].target, 0)
            if length > _LONGEST_RUN:
                continue
            run[node] = length
            inlined[node] = edges[0]
            # A stateful consumer emits elsewhere, or is itself the heavy code.
            ends_heavy[node] = target.heavy or (
                not target.keeps_state and ends_heavy.get(edges[0].target, False)
            )
        return inlined

    def _handed_on(self, node: int) -> Sequence[Edge]:
        """Edges to readers that are inlined at a node's output."""
        step = self._steps[node]
        if isinstance(step, LoopStep) and step.makes_set:
            # Outside of the loop its change is known when the last round is over.
            return self.readers(node, self._loop_of[node])
        return self.consumers[node]

    def _may_inline(self, edge: Edge) -> bool:
        if edge.source not in self._members or edge.target not in self._members:
            return False
        # A feedback hands its rows out round by round, so they stand in a buffer.
        if isinstance(self._steps[edge.source], RoundFeedbackStep):
            return False
        if self._loop_of.get(edge.source) != self._loop_of.get(edge.target):
            return False
        return self._steps[edge.target].takes_where_made(edge.port)
