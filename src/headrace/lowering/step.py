"""Steps: the part of a generated function that implements one operator."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from headrace.lowering.row_code import MappingCode, RowCode, item_sources
from headrace.lowering.slot import Slot

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from headrace.expr.types import Schema
    from headrace.graph.node import Node, Operator
    from headrace.lowering.step_writer import StepWriter


class RowStep:
    """One operator's code within a region.

    operator:   of the node, of the class that the step is registered for.
    takes_rows: rows are taken one by one, inside the loop that makes them; else
                the step reads whole buffers in `finish`.
    keeps_state: it has slots or waits for its whole input, so it is not merely
                part of a chain.
    sites:      in how many places it emits: what follows is written that often.
    merges:     equal rows of its inputs become one, also where none is retracted.
    heavy:      so much code per row that it is not written more than once.
    consolidates: its rows of a tick are distinct.
    has_result: the rows that leave the region are in a variable of their own, not in its buffer.
    """

    operator: Any
    takes_rows: bool = True
    keeps_state: ClassVar[bool] = False
    sites: int = 1
    merges: bool = False
    heavy: ClassVar[bool] = False
    consolidates: ClassVar[bool] = False
    has_result: ClassVar[bool] = False

    def __init__(self, node: Node, writer: StepWriter) -> None:
        self.node = node
        self.operator = node.operator
        self.writer = writer
        self.code = writer.code

    def slots(self) -> tuple[Slot, ...]:
        """Return the slots of the operator's state."""
        return ()

    def begin(self) -> None:
        """Write the code to run before all loops of the region or, in a loop, before each round."""

    def takes_where_made(self, port: int) -> bool:
        """Return whether an input's rows may be consumed inline, before other inputs have arrived."""
        return self.takes_rows

    def consume(self, port: int, row: RowCode) -> None:
        """Write the code for one row of one input."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write the code to run when all inputs of the tick are complete."""

    def emit(self, row: RowCode) -> None:
        """Write the code for one row of the output."""
        self.writer.emit(self.node.id, row)

    def emit_tuple(self, row: str, weight: str | None = None) -> None:
        """Write the code for an output row in the variable `row`, column by column."""
        self.emit(RowCode(item_sources(row, len(self.node.schema.fields)), row, weight))

    def emit_unpacked(self, row: str, weight: str | None = None) -> None:
        """Write code that emits an output row with its columns in variables."""
        self.emit(RowCode(self.writer.unpack(self.node.schema, row), row, weight))

    # -- its state and inputs ----------------------------------------------------------------------

    def slot(self, what: str) -> str:
        """Return the name of the variable that holds one of the node's slots."""
        return self.writer.slot(self.node.id, what)

    def slot_getter(self, what: str) -> str:
        """Return the name of the variable that holds a slot's `get` method."""
        return self.writer.slot_get(self.node.id, what)

    def state(self, what: str) -> MappingCode:
        """Writer of code that accesses a slot of the node."""
        return MappingCode(self.writer, self.slot(what), self.slot_getter(what))

    def input_schema(self, port: int = 0) -> Schema:
        """Return the row type of an input."""
        return self.writer.input_schema(self.node, port)

    # -- what a region writes of a step ------------------------------------------------------------

    def write_start(self) -> None:
        """Write the code to run before the loops that may produce the node's rows."""
        if self.writer.is_buffered(self.node.id):
            self.code.line(f"{self.writer.buffer(self.node.id)} = []")
        self.begin()

    def write(self) -> None:
        """Write the node's code for its buffered inputs."""
        writer, node = self.writer, self.node.id
        with self.code.attribute_lines(node):
            buffered = [edge for edge in writer.entries(node) if writer.reads_buffer(edge)]
            writer.count_activations(node, [edge.source for edge in buffered])
            if self.takes_rows:
                for edge in buffered:
                    self.consume_buffer(edge.port)
            self.finish()

    def consume_buffer(self, port: int) -> None:
        """Write the node's code for each row of a buffered input."""
        with (
            self.writer.each_row(self.node, port) as row,
            self.code.attribute_lines(self.node.id, row.columns),
        ):
            self.consume(port, row)


@singledispatch
def step_for(operator: Operator, node: Node, writer: StepWriter) -> RowStep:
    """Create the step of an operator; every operator class registers one."""
    raise NotImplementedError(f"the in-process engine has no step for {type(operator).__name__}")


S = TypeVar("S", bound=RowStep)


def register_step(*operators: type[Operator]) -> Callable[[type[S]], type[S]]:
    """Register a step class for these operators, created from the node and the writer only."""

    def register(step: type[S]) -> type[S]:
        def made(operator: Operator, node: Node, writer: StepWriter) -> RowStep:
            return step(node, writer)

        for operator in operators:
            step_for.register(operator, made)
        return step

    return register


# --- steps of operators in loops with retractions -------------------------------------------------

# Rows there carry, beside a weight, the round in which they are there: `at`. A row
# that is there from round 3 on in an earlier tick, and from round 5 on now, is -1 at 3
# and +1 at 5. What answers row by row, and what multiplies (joins), hands a change
# on at once, whatever round it is of. What counts must know all changes up to a
# round first: it schedules its work for a turn in that round.


class LoopStep(RowStep):
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

    def prepare(self, steps: Mapping[int, RowStep]) -> None:
        """Agree with the region's other steps on how rows are passed, before any code is written."""

    def begin_loop(self) -> None:
        """Write the code to run before any row enters the loop."""

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
def loop_step_for(operator: Operator, node: Node, writer: StepWriter, varies: Sequence[bool]) -> RowStep:
    """Create the step of an operator in a loop with retractions. Default: one that works row by row."""
    assert operator.linear, f"{type(operator).__name__} in a loop whose rows may be taken back"
    return step_for(operator, node, writer)


N = TypeVar("N", bound=LoopStep)


def register_loop_step(*operators: type[Operator]) -> Callable[[type[N]], type[N]]:
    """Register a step class for these operators in loops with retractions."""

    def register(step: type[N]) -> type[N]:
        def made(operator: Operator, node: Node, writer: StepWriter, varies: Sequence[bool]) -> RowStep:
            return step(node, writer, varies)

        for operator in operators:
            loop_step_for.register(operator, made)
        return step

    return register


def repeatable_weight(writer: StepWriter, row: RowCode) -> str:
    """Return the source of a row's weight that is cheap to repeat."""
    weight = row.copies
    if weight.isidentifier() or weight.lstrip("-").isdigit():
        return weight
    name = writer.fresh("weight")
    writer.code.line(f"{name} = {weight}")
    return name
