"""Transient pairs of joins: pairs that are made and retracted again within one tick.

A join processes changes one after the other. If a row arrives on one side while its old partner leaves on the
other, the two may be paired and separated again within a tick. No sink sees that pair, but an expression or
function after the join would be evaluated on it, and might fail. If that is possible, the join applies
retractions before insertions; otherwise it does not need to, which saves the buffers of its inputs.

In a loop with retractions, the changes of several rounds come together, so that order does not help: there
the input of the fallible operator is held back until all changes of its round are known. Those that remain
existed, in an earlier tick or in this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.expr.check import can_fail
from headrace.lowering.round_history import RoundSumsWriter
from headrace.lowering.step import LoopStep
from headrace.operators.distinct import Distinct
from headrace.operators.feedback import Feedback
from headrace.operators.join.join import Difference, Join
from headrace.operators.rows import Partition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.expr.types import Schema
    from headrace.graph.node import FlowGraph, Node
    from headrace.lowering.row_code import RowCode
    from headrace.lowering.slot import Slot
    from headrace.lowering.step import RowStep
    from headrace.lowering.step_writer import StepWriter


def applies_retractions_first(writer: StepWriter, node: Node) -> bool:
    """Return whether pairs that never existed could be observed downstream of a join."""
    if all(writer.is_append(source) for source in node.inputs):
        return False
    graph, operator = writer.graph, node.operator
    if isinstance(operator, Join) and operator.residual is not None:
        pairs = operator.pair_schema(_input_schemas(graph, node))
        if can_fail(operator.residual, pairs):
            return True
    seen: set[int] = set()
    waiting = [node.id]
    while waiting:
        for edge in writer.consumers[waiting.pop()]:
            target = graph.nodes[edge.target]
            if evaluates_fallible(graph, target):
                return True
            if edge.target not in seen and not target.operator.reads_net_changes:
                seen.add(edge.target)
                waiting.append(edge.target)
    return False


def evaluates_fallible(graph: FlowGraph, node: Node) -> bool:
    """Return whether a node evaluates anything that may fail on a row."""
    if isinstance(node.operator, Partition) or next(node.operator.callables(), None) is not None:
        # A row whose port is none of a partition's fails, however the port is found.
        return True
    operator, inputs = node.operator, _input_schemas(graph, node)
    if isinstance(operator, Join):
        sides = zip((operator.left_keys, operator.right_keys), inputs, strict=True)
        found = [(key, schema) for keys, schema in sides for key in keys]
        if operator.residual is not None:
            found.append((operator.residual, operator.pair_schema(inputs)))
    else:
        found = [(expr, inputs[0]) for _, expr in operator.expressions()]
    return any(can_fail(expr, schema) for expr, schema in found)


def _input_schemas(graph: FlowGraph, node: Node) -> list[Schema]:
    return [graph.nodes[source].schema for source in node.inputs]


# --- in loops with retractions --------------------------------------------------------------------


class RoundwiseLoopStep(LoopStep):
    """Wrapper of a fallible operator after a join: its input is consolidated per round first."""

    heavy = True

    def __init__(self, step: RowStep, varies: Sequence[bool]) -> None:
        super().__init__(step.node, step.writer, varies)
        self._step = step
        self.sites = step.sites
        self._inputs = {
            port: RoundSumsWriter(
                step.node.id, step.writer, f"input{port}", step.writer.input_schema(step.node, port)
            )
            for port, goes_round in enumerate(varies)
            if goes_round
        }

    def slots(self) -> tuple[Slot, ...]:
        return self._step.slots()

    def prepare(self, steps: Mapping[int, RowStep]) -> None:
        if isinstance(self._step, LoopStep):
            self._step.prepare(steps)

    def begin_loop(self) -> None:
        for sums in self._inputs.values():
            sums.begin_loop()
        if isinstance(self._step, LoopStep):
            self._step.begin_loop()

    def write_outside_rows(self, port: int) -> None:
        if isinstance(self._step, LoopStep):
            self._step.write_outside_rows(port)
        else:
            super().write_outside_rows(port)

    def begin_round(self) -> None:
        if isinstance(self._step, LoopStep):
            self._step.begin_round()

    def consume(self, port: int, row: RowCode) -> None:
        if port in self._inputs:
            self._inputs[port].add(row)
        else:
            self._step.consume(port, row)

    def write_round(self) -> None:
        for port, sums in self._inputs.items():

            def consume(row: RowCode, port: int = port) -> None:
                with self.code.attribute_lines(self.node.id, row.columns):
                    self._step.consume(port, row)

            sums.write_round(consume)
        if isinstance(self._step, LoopStep):
            self._step.write_round()

    def end_round(self) -> None:
        if isinstance(self._step, LoopStep):
            self._step.end_round()


def may_see_transient_pairs(writer: StepWriter, node: Node, loop: Sequence[int]) -> bool:
    """Return whether a fallible node of a loop may see join output that consolidation would cancel."""
    if not evaluates_fallible(writer.graph, node):
        return False
    seen = {node.id}
    waiting = [node]
    while waiting:
        for source in waiting.pop().inputs:
            read = writer.graph.nodes[source]
            if source not in loop or source in seen or isinstance(read.operator, Feedback | Distinct):
                continue
            if isinstance(read.operator, Join | Difference):
                return True
            seen.add(source)
            waiting.append(read)
    return False
