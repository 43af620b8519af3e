"""Operators between whole ticks: all rows again in each tick, and rows in excess of the last tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator
from headrace.graph.operator_declarations import WHOLE, Facts, Need, Placement, Port
from headrace.lowering.forms import lower_operator
from headrace.lowering.reference import Bag, Examples, OperatorInput, output_of_tick, sum_bags
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot, thaw_dict, thaw_list
from headrace.lowering.step import Step, register_step
from headrace.operators.lifetime import CutDependent
from headrace.operators.unservable import LATER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Unservable
    from headrace.lowering.forms import BatchSite
    from headrace.lowering.step_writer import StepWriter


# --- every-tick operator: emit all current rows again in each tick --------------------------------


@dataclass(frozen=True, slots=True)
class EveryTick(CutDependent):
    """On each tick, all current rows of the input, as plain rows in order of first arrival.

    It emits rows in every tick that runs, even one without input, but starts no tick; the cost of a tick is
    proportional to all rows so far. A retracted row is no longer emitted, and no output is ever retracted.
    Within a loop, the first round emits all rows, and later rounds only the new ones.

    nondet: reason why results may depend on the cut into ticks: a row is emitted once per tick.

    >>> import headrace as hr
    >>> flow = hr.Flow("repeated")
    >>> flow.sink("shown", flow.source("numbers", int).every_tick(nondet="a screen is drawn per tick"))
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick(numbers=[1, 2])["shown"]]
    [1, 2]
    >>> [change.row for change in engine.tick(numbers=[3])["shown"]]
    [1, 2, 3]
    >>> [change.row for change in engine.tick()["shown"]]
    [1, 2, 3]
    """

    kind: ClassVar[str] = "every_tick"
    examples: ClassVar[Examples] = {"every_tick": lambda x, y: y.every_tick()}
    runs_each_tick: ClassVar[bool] = True
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return LATER

    def one_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(bounded=False, append=True, det=rows.det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "what was shown in an earlier round of the loop is not taken back",
                "feed the loop from streams that only grow",
                only_in_loop=True,
            ),
        )

    def depends_on_cut(self) -> str:
        return "It emits its rows once per tick, so the answer shows the number of ticks."

    def placement(self) -> Placement:
        return WHOLE


# --- multiset-delta operator: rows of this tick in excess of the previous tick --------------------


@dataclass(frozen=True, slots=True)
class MultisetDelta(CutDependent):
    """For each row, as many copies as this tick has more than the previous one.

    As many first copies are left out as the previous tick had; the others keep their order. A tick without
    rows emits nothing, but counts as the previous tick of the next. After `every_tick` of an append stream,
    it emits the new rows.

    nondet: reason why results may depend on the cut into ticks.

    >>> import headrace as hr
    >>> flow = hr.Flow("news")
    >>> flow.sink("news", flow.source("seen", int).multiset_delta(nondet="a tick is a look around"))
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick(seen=[3, 4, 3])["news"]]
    [3, 4, 3]
    >>> [change.row for change in engine.tick(seen=[3, 5, 3, 3])["news"]]
    [5, 3]
    """

    kind: ClassVar[str] = "multiset_delta"
    examples: ClassVar[Examples] = {"multiset_delta": lambda x, y: x.multiset_delta()}
    runs_each_tick: ClassVar[bool] = True
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return LATER

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True, det=inputs[0].det and self.nondet is None)

    def needs(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "it compares the rows of two ticks, and a tick that takes rows back has less than none",
                "let .every_tick(nondet=...) show the rows of the table in each tick",
            ),
        )

    def depends_on_cut(self) -> str:
        return "It compares each tick with the one before, so where ticks end shows."

    def placement(self) -> Placement:
        return WHOLE


@register_step(EveryTick)
class EveryTickStep(Step):
    """Step of every_tick. Slot, under the key (): the rows so far in order; for a table, {row: copies}."""

    takes_rows = False
    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.appends = writer.is_append(node.inputs[0])

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.rows", thaw_list if self.appends else thaw_dict),)

    def finish(self) -> None:
        writer, code = self.writer, self.code
        own, row = writer.fresh("own"), writer.fresh("row")
        self.state("rows").get_or_add(own, "()", "[]" if self.appends else "{}")
        if not self.appends:
            self._show_table(own)
            return
        fresh, shown = writer.buffer(self.node.inputs[0]), writer.fresh("shown")
        code.line(f"{own}.extend({fresh})")
        in_loop = writer.is_in_loop(self.node.id)
        # Later rounds show what is new in them: the first has shown all the rest.
        code.line(
            f"{shown} = {fresh} if {writer.round_variable(self.node.id)} else {own}"
            if in_loop
            else f"{shown} = {own}"
        )
        with code.block(f"for {row} in {shown}:"):
            self.emit_unpacked(row)

    def _show_table(self, own: str) -> None:
        writer, code = self.writer, self.code
        with writer.each_row(self.node, 0) as change:
            total, key = writer.fresh("n"), writer.fresh("row")
            code.line(f"{key} = {writer.row_key(self.node.schema, change.columns)}")
            code.line(f"{total} = {own}.get({key}, 0) + {change.copies}")
            with code.block(f"if {total}:"):
                code.line(f"{own}[{key}] = {total}")
            with code.block("else:"):
                code.line(f"del {own}[{key}]")
        row, copies = writer.fresh("row"), writer.fresh("n")
        with code.block(f"for {row}, {copies} in {own}.items():"):
            writer.emit_copies(self.node.id, RowCode(writer.unpack(self.node.schema, row), row, copies))


@register_step(MultisetDelta)
class MultisetDeltaStep(Step):
    """Step of multiset_delta. Slot, under the key (): {row: copies} of the last tick.

    `before` has those not matched yet in this tick, `now` counts this tick's rows.
    """

    keeps_state = True
    merges = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.before = writer.node_variable("before", node.id)
        self.now = writer.node_variable("now", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.rows", thaw_dict),)

    def begin(self) -> None:
        with self.writer.in_first_round(self.node.id):
            self.code.line(f"{self.before} = {self.slot_getter('rows')}(()) or {{}}")
            self.code.line(f"{self.now} = {self.slot('rows')}[()] = {{}}")

    def consume(self, port: int, row: RowCode) -> None:
        writer, code = self.writer, self.code
        key, copies = writer.fresh("row"), writer.fresh("n")
        code.line(f"{key} = {writer.row_key(self.node.schema, row.columns)}")
        code.line(f"{self.now}[{key}] = {self.now}.get({key}, 0) + 1")
        code.line(f"{copies} = {self.before}.get({key})")
        with code.block(f"if {copies}:"):
            code.line(f"{self.before}[{key}] = {copies} - 1")
        with code.block("else:"):
            self.emit(row)


@lower_operator.register(EveryTick)
@lower_operator.register(MultisetDelta)
def _on_spark(operator: Operator, site: BatchSite) -> DataFrame:
    # A batch has one tick.
    return site.inputs[0]


@output_of_tick.register(EveryTick)
def _every_tick_output(operator: EveryTick, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return inputs[0].now


@output_of_tick.register(MultisetDelta)
def _multiset_delta_output(operator: MultisetDelta, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return inputs[0].tick_changes - sum_bags(inputs[0].changes[-2:-1])
