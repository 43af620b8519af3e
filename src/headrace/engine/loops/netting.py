"""Consolidation of a loop's rows per round, before they are emitted.

A join in a loop processes changes one by one, across rounds. Some of its pairs are retracted again in the
same tick and never existed. If an expression or function could fail on such a pair, changes are held back
until all changes of their round are known; the remaining ones existed, in an earlier tick or in this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.lowering.row_code import Row
from headrace.lowering.step import LoopStep
from headrace.operators.difference import Difference
from headrace.operators.distinct import Distinct
from headrace.operators.feedback import Feedback
from headrace.operators.join import Join
from headrace.operators.retractions_first import evaluates_fallible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.expr.types import Schema
    from headrace.graph.node import Node
    from headrace.lowering.slot import Slot
    from headrace.lowering.step import Step
    from headrace.lowering.step_writer import StepWriter


class RoundSumsWriter:
    """Writer of code that sums rows per round.

    shift: number of rounds by which a row is delayed.
    """

    def __init__(self, node: int, writer: StepWriter, what: str, schema: Schema, shift: int = 0) -> None:
        self._node = node
        self._writer = writer
        self._schema = schema
        self._shift = shift
        self._pending = writer.node_variable(what, node)

    def begin_loop(self) -> None:
        self._writer.code.line(f"{self._pending} = {{}}")

    def add(self, row: Row) -> None:
        """Write code that adds a row's weight at the writer's current `at`."""
        writer = self._writer
        at = f"{writer.at} + {self._shift}" if self._shift else writer.at
        now, times = writer.round_variable(self._node), writer.round_heap(self._node)
        sums = f"{self._pending}, {times}, {now}, {at}, {row.source}, {row.copies}"
        writer.code.line(f"x_sum_by_round({sums})")

    def turn(self, emit: Callable[[Row], None]) -> None:
        """Write the code for the rows of this round."""
        writer, code = self._writer, self._writer.code
        row, weight = writer.fresh("row"), writer.fresh("weight")
        rows = f"{self._pending}.pop({writer.round_variable(self._node)}, x_no_rows)"
        with code.block(f"for {row}, {weight} in {rows}.items():"), code.block(f"if {weight}:"):
            emit(Row(writer.unpack(self._schema, row), row, weight))


class NettedStep(LoopStep):
    """Wrapper of a fallible operator after a join: its input is consolidated per round first."""

    heavy = True

    def __init__(self, step: Step, varies: Sequence[bool]) -> None:
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

    def prepare(self, steps: Mapping[int, Step]) -> None:
        if isinstance(self._step, LoopStep):
            self._step.prepare(steps)

    def begin_loop(self) -> None:
        for netting in self._inputs.values():
            netting.begin_loop()
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

    def consume(self, port: int, row: Row) -> None:
        if port in self._inputs:
            self._inputs[port].add(row)
        else:
            self._step.consume(port, row)

    def write_round(self) -> None:
        for port, netting in self._inputs.items():

            def consume(row: Row, port: int = port) -> None:
                with self.code.attribute_lines(self.node.id, row.columns):
                    self._step.consume(port, row)

            netting.turn(consume)
        if isinstance(self._step, LoopStep):
            self._step.write_round()

    def end_round(self) -> None:
        if isinstance(self._step, LoopStep):
            self._step.end_round()


def may_meet_what_never_was(writer: StepWriter, node: Node, loop: Sequence[int]) -> bool:
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
