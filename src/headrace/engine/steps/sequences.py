"""Steps that depend on row order: chain, zip, cross_singleton."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.engine.steps.joins import SIDES
from headrace.lowering.row_code import Row, tuple_source
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step
from headrace.operators.chain import Chain, ChainFirstN
from headrace.operators.cross_singleton import CrossSingleton
from headrace.operators.lifetime import Lifetime
from headrace.operators.zip import Zip, ZipLongest

if TYPE_CHECKING:
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter


@register_step(Chain)
class ChainStep(Step):
    """Step of chain over whole buffers, port by port."""

    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.sites = len(node.inputs)

    def finish(self) -> None:
        for port in range(len(self.node.inputs)):
            with self.writer.each_row(self.node, port) as row:
                self.emit(row)


@register_step(ChainFirstN)
class ChainFirstNStep(Step):
    """Step of chain_first_n. `left` counts the rows a tick may still emit, over all rounds of a loop."""

    takes_rows = False
    operator: ChainFirstN
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.left = writer.node_variable("left", node.id)
        self.sites = len(node.inputs)

    def begin(self) -> None:
        with self.writer.in_first_round(self.node.id):
            self.code.line(f"{self.left} = {self.operator.count}")

    def finish(self) -> None:
        for port in range(len(self.node.inputs)):
            with self.writer.each_row(self.node, port) as row:
                with self.code.block(f"if not {self.left}:"):
                    self.code.line("break")
                self.code.line(f"{self.left} -= 1")
                self.emit(row)


@register_step(CrossSingleton)
class CrossSingletonStep(Step):
    """Step of cross_singleton: appends the first row of `single`, complete by then, to each row."""

    takes_rows = False
    operator: CrossSingleton
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.single = writer.node_variable("single", node.id)

    def begin(self) -> None:
        with self.writer.in_first_round(self.node.id):
            self.code.line(f"{self.single} = None")

    def finish(self) -> None:
        writer, code = self.writer, self.code
        # In a loop the buffer of `single` is there in the first round alone.
        with code.block(f"if {writer.buffer(self.node.inputs[1])}:"):
            code.line(f"{self.single} = {writer.buffer(self.node.inputs[1])}[0]")
        with code.block(f"if {self.single} is not None:"):
            columns = writer.unpack(self.input_schema(1), self.single)
            kept = tuple(columns[at] for at in self.operator.kept_right)
            with writer.each_row(self.node, 0) as row:
                self.emit(Row((*row.columns, *kept)))


@register_step(Zip)
class ZipStep(Step):
    """Step of zip. Slots: left and right, position -> unpaired row; counts, side -> rows so far.

    Whoever comes second at a position takes the first away from there. The counts of a
    side of lifetime TICK begin in each tick with the pairs so far, which the other side's
    slot tells where only one is of a tick.
    """

    operator: Zip
    keeps_state = True
    heavy = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.of_a_tick = tuple(lifetime is Lifetime.TICK for lifetime in self.operator.lifetimes)
        self.counts_pairs = any(self.of_a_tick) and not all(self.of_a_tick)

    def slots(self) -> tuple[Slot, ...]:
        node = self.node.id
        sides = zip(SIDES, self.of_a_tick, strict=True)
        kept = [
            Slot(f"{node}.{what}", transient=of_a_tick)
            for side, of_a_tick in sides
            for what in (side, f"{side}_count")
        ]
        return (*kept, Slot(f"{node}.pairs")) if self.counts_pairs else tuple(kept)

    def consume(self, port: int, row: Row) -> None:
        writer, code = self.writer, self.code
        side, other = SIDES[port], SIDES[1 - port]
        at, partner, whole = writer.fresh("at"), writer.fresh("row"), writer.fresh("row")
        code.line(f"{whole} = {row.source}")
        code.line(f"{at} = {self.slot_getter(f'{side}_count')}(())")
        with code.block(f"if {at} is None:"):
            first = "0"
            if self.counts_pairs and self.of_a_tick[port]:
                first = f"{self.slot_getter('pairs')}(()) or 0"
            code.line(f"{at} = {first}")
        code.line(f"{self.slot(f'{side}_count')}[()] = {at} + 1")
        code.line(f"{partner} = {self.slot_getter(other)}({at})")
        with code.block(f"if {partner} is None:"):
            code.line(f"{self.slot(side)}[{at}] = {whole}")
        with code.block("else:"):
            code.line(f"del {self.slot(other)}[{at}]")
            if self.counts_pairs:
                code.line(f"{self.slot('pairs')}[()] = {at} + 1")
            pair = (whole, partner) if port == 0 else (partner, whole)
            left = writer.unpack(self.input_schema(), pair[0])
            right = writer.unpack(self.input_schema(1), pair[1])
            self.emit(Row((*left, *(right[i] for i in self.operator.kept_right))))


@register_step(ZipLongest)
class ZipLongestStep(Step):
    """Step of zip_longest over two complete inputs, side by side."""

    takes_rows = False
    operator: ZipLongest
    keeps_state = True

    def finish(self) -> None:
        writer = self.writer
        schemas = [self.input_schema(port) for port in (0, 1)]
        buffers = [writer.buffer(source) for source in self.node.inputs]
        nulls = [tuple_source(["None"] * len(schema.fields)) for schema in schemas]
        rows = (writer.fresh("row"), writer.fresh("row"))
        with self.code.block(f"for {rows[0]}, {rows[1]} in x_zip_longest({', '.join(buffers)}):"):
            left = writer.unpack(schemas[0], f"{rows[0]} or {nulls[0]}")
            right = writer.unpack(schemas[1], f"{rows[1]} or {nulls[1]}")
            self.emit(Row((*left, *(right[i] for i in self.operator.kept_right))))
