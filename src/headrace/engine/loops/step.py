"""Steps of operators in loops with retractions.

Rows there carry, beside a weight, the round in which they are there: `at`. A row
that is there from round 3 on in an earlier tick, and from round 5 on now, is -1 at 3
and +1 at 5. What answers row by row, and what multiplies (joins), hands a change
on at once, whatever round it is of. What counts must know all changes up to a
round first: it schedules its work for a turn in that round.
"""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, TypeVar

from headrace.engine.steps.step import Step, step_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from headrace.engine.row_codegen import Row
    from headrace.engine.step_writer import StepWriter
    from headrace.graph.node import Node, Operator


class NestedStep(Step):
    """Code of one operator in a loop with retractions.

    varies: per port, whether what it reads goes round. What does not enters before the
            first round, at round 0.
    makes_set: in each round its rows are a set, and a row that is there stays in later ones.
    is_feedback: it closes the loop, and hands out in a round what came in the one before.
    """

    keeps_state = True
    makes_set: bool = False
    is_feedback: bool = False

    def __init__(self, node: Node, writer: StepWriter, varies: Sequence[bool]) -> None:
        super().__init__(node, writer)
        self.varies = varies

    def prepare(self, steps: Mapping[int, Step]) -> None:
        """Agree with the region's other steps on how rows are passed, before any code is written."""

    def begin_loop(self) -> None:
        """Write the code to run before anything enters the loop."""

    def write_outside_rows(self, port: int) -> None:
        """Write the code for all rows of a loop-invariant input. Default: each is consumed."""
        self.consume_buffer(port)

    def begin_round(self) -> None:
        """Write the code to run before each round."""

    def write_round(self) -> None:
        """Write the code for the work scheduled for this round."""

    def end_round(self) -> None:
        """Write the code to run after each round."""

    def write_changes(self, out: str) -> None:
        """Write code that appends the result's changes to the list `out`, after the last round.

        Only where `makes_set`: elsewhere the changes of the rounds are summed.
        """


@singledispatch
def nested_step_for(operator: Operator, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
    """Create the step of an operator in a loop with retractions. Default: one that works row by row."""
    assert operator.linear, f"{type(operator).__name__} in a loop whose rows may be taken back"
    return step_for(operator, node, writer)


N = TypeVar("N", bound=NestedStep)


def nested_step_of(*operators: type[Operator]) -> Callable[[type[N]], type[N]]:
    """Register a step class for these operators in loops with retractions."""

    def register(step: type[N]) -> type[N]:
        def made(operator: Operator, node: Node, writer: StepWriter, varies: Sequence[bool]) -> Step:
            return step(node, writer, varies)

        for operator in operators:
            nested_step_for.register(operator, made)
        return step

    return register


def repeatable_weight(writer: StepWriter, row: Row) -> str:
    """Return the source of a row's weight that is cheap to repeat."""
    weight = row.copies
    if weight.isidentifier() or weight.lstrip("-").isdigit():
        return weight
    name = writer.fresh("weight")
    writer.code.line(f"{name} = {weight}")
    return name
