"""Operators that pair the rows of two ordered streams by position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port, meet
from headrace.lowering.reference import Examples
from headrace.lowering.row_code import RowCode, tuple_source
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step
from headrace.operators.lifetime import DEPENDS_ON_CUT, CutDependent, Lifetime, with_lifetimes
from headrace.operators.unservable import IN_ORDER

if TYPE_CHECKING:
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Unservable
    from headrace.lowering.step_writer import StepWriter


# --- zip operator: pair the rows of two ordered streams by position -------------------------------


@dataclass(frozen=True, slots=True)
class Zip(CutDependent):
    """Pairs of the first rows, the second rows, and so on.

    A row without a partner waits for one: across ticks if its input has lifetime STATIC, until the end of its
    tick for TICK; then it is dropped, and the next row of that input takes its turn. Pairs are emitted in the
    order of their positions, each as soon as it is complete. A tick without rows emits nothing.

    kept_right: positions of the columns of `right` in the output, after those of `left`.
    nondet:     reason why results may depend on the cut into ticks, if a lifetime is TICK.

    >>> from headrace.testing import show
    >>> show(lambda names, ages: names.zip(ages, suffix="_age"), names=["ann", "bob"], ages=[30, 20, 7])
    + (value='ann', value_age=30)
    + (value='bob', value_age=20)
    """

    kind: ClassVar[str] = "zip"
    examples: ClassVar[Examples] = {"zip": lambda x, y: x.zip(x, suffix="_y")}
    kept_right: tuple[int, ...]
    lifetimes: tuple[Lifetime, Lifetime] = (Lifetime.STATIC, Lifetime.STATIC)
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("left"), Port("right"))

    def output(self, context: CheckContext) -> Columns:
        return context.all_joined_columns(self.kept_right)

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(append=True, ordered=True, det=both.det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
        return position_needs(0) + position_needs(1)

    def depends_on_cut(self) -> str:
        return DEPENDS_ON_CUT if Lifetime.TICK in self.lifetimes else ""

    def placement(self) -> Placement:
        return WHOLE

    def describe(self) -> str:
        return with_lifetimes("", self.lifetimes)


def position_needs(port: int) -> tuple[Need, ...]:
    """Return the facts that an operator needs of an input that it reads by position."""
    return (
        Need(
            port,
            "append",
            "a row that is taken back would move all that stand behind it",
            "pair streams that only grow, or join() on a key",
        ),
        Need(
            port,
            "ordered",
            "rows are paired by their position",
            "declare the order in which rows come to be the one that is meant: .assume_ordered(nondet=...),\n"
            "or join() on a key",
        ),
    )


# --- zip-longest operator: pair the rows of two streams by position up to the longer one ----------


@dataclass(frozen=True, slots=True)
class ZipLongest(CutDependent):
    """Pairs of the rows of each tick by position, with nulls where one input is shorter.

    Both inputs are complete first, since only then the longer one is known. Each tick starts over. A tick
    without rows emits nothing.

    kept_right: positions of the columns of `right` in the output, after those of `left`.
    nondet:     reason why results may depend on the cut into ticks.

    >>> from headrace.testing import show
    >>> why = "a table is printed per tick"
    >>> show(lambda a, b: a.zip_longest(b, suffix="_b", nondet=why), a=[1, 2], b=["x"])
    + (value=1, value_b='x')
    + (value=2, value_b=None)
    """

    kind: ClassVar[str] = "zip_longest"
    examples: ClassVar[Examples] = {"zip_longest": lambda x, y: x.zip_longest(x, suffix="_y")}
    kept_right: tuple[int, ...]
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        why = "nulls are given for rows that do not come"
        return (Port("left", blocking=True, why=why), Port("right", blocking=True, why=why))

    def output(self, context: CheckContext) -> Columns:
        return context.all_joined_columns(self.kept_right, may_lack=True)

    def unservable(self) -> Unservable | None:
        return IN_ORDER

    def placement(self) -> Placement:
        return WHOLE

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        both = meet(inputs)
        return both.but(append=True, ordered=True, det=both.det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
        return position_needs(0) + position_needs(1)

    def depends_on_cut(self) -> str:
        return "Each tick is answered for itself, so which rows stand side by side in it decides."


_SIDES = ("left", "right")


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
        sides = zip(_SIDES, self.of_a_tick, strict=True)
        kept = [
            Slot(f"{node}.{what}", transient=of_a_tick)
            for side, of_a_tick in sides
            for what in (side, f"{side}_count")
        ]
        return (*kept, Slot(f"{node}.pairs")) if self.counts_pairs else tuple(kept)

    def consume(self, port: int, row: RowCode) -> None:
        writer, code = self.writer, self.code
        side, other = _SIDES[port], _SIDES[1 - port]
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
            self.emit(RowCode((*left, *(right[i] for i in self.operator.kept_right))))


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
            self.emit(RowCode((*left, *(right[i] for i in self.operator.kept_right))))
