"""What a step is: the part of a generated function that does one operator's work."""

from __future__ import annotations

from functools import singledispatch
from typing import TYPE_CHECKING, ClassVar

from penstock.engine.slot import Slot

if TYPE_CHECKING:
    from penstock.engine.row_codegen import Row
    from penstock.engine.step_writer import StepWriter
    from penstock.graph.node import Node, Operator


class Step:
    """One operator's code within a region.

    takes_rows: rows are taken one by one, inside the loop that makes them; else
                the step reads whole buffers in `finish`.
    keeps_state: it has slots or waits for its whole input, so it is not merely
                part of a chain.
    sites:      in how many places it emits: what follows is written that often.
    merges:     equal rows of its inputs become one, also where none is taken back.
    heavy:      so much code per row that it is not written more than once.
    """

    takes_rows: bool = True
    keeps_state: ClassVar[bool] = False
    sites: int = 1
    merges: bool = False
    heavy: ClassVar[bool] = False
    consolidates: ClassVar[bool] = False
    has_result: ClassVar[bool] = False

    def __init__(self, node: Node, writer: StepWriter) -> None:
        self.node = node
        self.writer = writer
        self.code = writer.code

    def slots(self) -> tuple[Slot, ...]:
        """The state it keeps."""
        return ()

    def begin(self) -> None:
        """Write what must stand before all loops of the region; in a loop, of each of its rounds."""

    def takes_where_made(self, port: int) -> bool:
        """Whether rows of an input may be taken where they are made, before other inputs have come."""
        return self.takes_rows

    def consume(self, port: int, row: Row) -> None:
        """Write what is done with one row of one input."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write what is done when all inputs are complete for the tick."""

    def emit(self, row: Row) -> None:
        """Write what is done with one row of the output."""
        self.writer.emit(self.node.id, row)

    # -- what a region writes of a step ------------------------------------------------------------

    def write_start(self) -> None:
        """Write what stands before the loops that may make the node's rows."""
        if self.writer.has_buffer(self.node.id):
            self.code.line(f"{self.writer.buffer(self.node.id)} = []")
        self.begin()

    def write(self) -> None:
        """Write what the node does with its inputs' buffers."""
        writer, node = self.writer, self.node.id
        with self.code.working_for(node):
            buffered = [edge for edge in writer.entries(node) if writer.reads_buffer(edge)]
            writer.note_activations(node, [edge.source for edge in buffered])
            if self.takes_rows:
                for edge in buffered:
                    self.consume_buffer(edge.port)
            self.finish()

    def consume_buffer(self, port: int) -> None:
        """Write what the node does with each row of an input that stands in a buffer."""
        with self.writer.each_row(self.node, port) as row, self.code.working_for(self.node.id, row.columns):
            self.consume(port, row)


@singledispatch
def step_for(operator: Operator, node: Node, writer: StepWriter) -> Step:
    """The step of an operator; every operator class registers one."""
    raise NotImplementedError(f"the in-process engine has no step for {type(operator).__name__}")
