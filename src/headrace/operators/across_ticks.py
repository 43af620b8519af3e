"""Operators across ticks: deferred changes, current rows repeated in each tick, and multiset deltas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from headrace.graph.node import ALTERABLE, Operator, identity_lineage
from headrace.graph.operator_declarations import (
    EQUAL_ROWS,
    LATER,
    WHOLE,
    Delay,
    Facts,
    Need,
    PendingSlot,
    Placement,
    Port,
    place_by_key,
)
from headrace.lowering.forms import lower_operator
from headrace.lowering.reference import (
    Bag,
    Bags,
    Examples,
    OperatorInput,
    answer_of_bags,
    output_of_tick,
    sum_bags,
)
from headrace.lowering.row_code import RowCode
from headrace.lowering.slot import Slot, thaw_dict, thaw_list
from headrace.lowering.step import RowStep, register_step
from headrace.operators.lifetime import TickDependent

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from pyspark.sql import DataFrame

    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import BatchContext
    from headrace.lowering.step_writer import StepWriter


class TickDelay(TickDependent):
    """Base of operators that emit the changes of the previous tick. delay: whether those start a tick."""

    __slots__ = ()
    delay: ClassVar[Delay]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", delay=self.delay),)

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return LATER

    def reads(
        self, inputs: Sequence[Schema], output: Schema, live: AbstractSet[str]
    ) -> tuple[AbstractSet[str], ...] | None:
        return (live,)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"deferred": PendingSlot()}

    def placement(self) -> Placement:
        # The state must be kept on some shard, and any will do.
        return place_by_key(EQUAL_ROWS)

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(bounded=False, det=inputs[0].det and self.nondet is None)


@dataclass(frozen=True, slots=True)
class DeferTick(TickDelay):
    """The changes of the previous tick. Pending changes start a tick if nothing else does.

    Every cycle through a blocking input needs a tick delay such as this. The results of such a cycle depend
    on how the input is cut into ticks, which needs a reason: `nondet="..."`, or a flow with `ticks="given"`.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.union(numbers.defer_tick()), numbers=[1])
    + 1
    tick 2:
    + 1
    """

    kind: ClassVar[str] = "defer_tick"
    examples: ClassVar[Examples] = {"defer_tick": lambda x, y: y.defer_tick()}
    delay: ClassVar[Delay] = Delay.TICK
    nondet: str | None = field(default=None, metadata=ALTERABLE)


@dataclass(frozen=True, slots=True)
class DeferTickLazy(TickDelay):
    """The changes of the previous tick. Pending changes wait for a tick that something else starts.

    So changes pending when a run ends are not emitted. Like `defer_tick`, it may be in a cycle through a
    blocking input. Rows keep their order. In the first tick, and after a tick without changes, it emits
    nothing.

    nondet: reason why results may depend on the cut into ticks.

    >>> import headrace as hr
    >>> flow = hr.Flow("echo")
    >>> flow.sink("before", flow.source("words", str).defer_tick_lazy(nondet="an echo waits for a call"))
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick(words=["hey"])["before"]]
    []
    >>> engine.pending
    False
    >>> [change.row for change in engine.tick(words=["ho"])["before"]]
    ['hey']
    """

    kind: ClassVar[str] = "defer_tick_lazy"
    examples: ClassVar[Examples] = {"defer_tick_lazy": lambda x, y: y.defer_tick_lazy()}
    delay: ClassVar[Delay] = Delay.LAZY
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def depends_on_cut(self) -> str:
        return "What it holds waits for a tick that something else starts, so the number of ticks shows."


@dataclass(frozen=True, slots=True)
class DeferSignal(TickDependent):
    """All changes since the last signal, emitted in the tick of the next one.

    Any row of `signal` is a signal, which releases the rows of earlier ticks and of its own tick. Several
    signals in a tick count as one, and a signal without rows to release is used up. Rows retracted meanwhile
    are never emitted. Rows still held when a run ends are not emitted. Plain rows keep their order.

    nondet: reason why results may depend on the cut into ticks.

    >>> import headrace as hr
    >>> flow = hr.Flow("post")
    >>> letters, van = flow.source("letters", str), flow.source("van", str)
    >>> flow.sink("sent", letters.defer_signal(van, nondet="post leaves with the van"))
    >>> engine = hr.Engine(flow)
    >>> [change.row for change in engine.tick(letters=["a", "b"])["sent"]]
    []
    >>> [change.row for change in engine.tick(letters=["c"], van=["nine o'clock"])["sent"]]
    ['a', 'b', 'c']
    """

    kind: ClassVar[str] = "defer_signal"
    examples: ClassVar[Examples] = {"defer_signal": lambda x, y: y.defer_signal(x)}
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def ports(self) -> tuple[Port, ...]:
        return (
            Port("input", blocking=True, why="a signal releases all rows of its tick together"),
            Port("signal", blocking=True, why="whether rows are released is not known before"),
        )

    def output(self, context: CheckContext) -> Columns:
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return LATER

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows, signal = inputs
        return rows.but(
            bounded=rows.bounded and signal.bounded, det=rows.det and signal.det and self.nondet is None
        )

    def required_facts(self) -> tuple[Need, ...]:
        return (
            Need(
                1,
                "append",
                "a signal that was followed cannot be taken back",
                "signal by a stream that only grows",
            ),
        )

    def depends_on_cut(self) -> str:
        return "A signal releases the rows that came by the end of its tick, so where ticks end shows."

    def placement(self) -> Placement:
        return WHOLE


@register_step(DeferSignal)
class DeferSignalStep(RowStep):
    """Step of defer_signal. Slot, under the key (): the changes since the last signal, in order."""

    takes_rows = False
    keeps_state = True

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.held", thaw_list),)

    def finish(self) -> None:
        writer, code, node = self.writer, self.code, self.node.id
        rows, signals = (writer.buffer(source) for source in self.node.inputs)
        held = writer.fresh("held")
        self.state("held").get_or_add(held, "()", "[]")
        if writer.is_as_given(self.node.inputs[0]):
            with writer.each_row(self.node, 0) as change:
                code.line(f"{held}.append({change.flat(append=False)})")
        else:
            code.line(f"{held}.extend({rows})")
        with code.block(f"if {signals} and {held}:"):
            code.line(f"del {self.slot('held')}[()]")
            row = writer.fresh("row")
            if writer.is_append(node):
                with code.block(f"for {row} in {held}:"):
                    self.emit_unpacked(row)
                return
            columns = tuple(writer.fresh(field.name) for field in self.node.schema.fields)
            weight = writer.fresh("weight")
            with code.block(f"for {', '.join((*columns, weight))} in x_consolidate({held}):"):
                self.emit(RowCode(columns, None, weight))


# --- in a batch of Spark: one tick of input, and the ticks that pending rows start -----------------


@lower_operator.register(DeferTick)
def _defer_tick_on_spark(operator: DeferTick, context: BatchContext) -> DataFrame:
    return context.inputs[0]


@lower_operator.register(DeferTickLazy)
def _defer_tick_lazy_on_spark(operator: DeferTickLazy, context: BatchContext) -> DataFrame:
    return context.empty()


@lower_operator.register(DeferSignal)
def _defer_signal_on_spark(operator: DeferSignal, context: BatchContext) -> DataFrame:
    from pyspark.sql import functions as f

    rows, signal = context.inputs
    return rows.join(signal.select(f.lit(1).alias("headrace signal")).limit(1)).drop("headrace signal")


# --- reference answers ----------------------------------------------------------------------------


@answer_of_bags.register(DeferTick)
def _defer_tick_answer(operator: DeferTick, node: Node, inputs: Bags) -> Bag:
    # Once nothing is pending, deferred rows have arrived.
    return inputs[0][1]


@output_of_tick.register(TickDelay)
def _defer_tick_output(operator: TickDelay, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return sum_bags(inputs[0].changes[-2:-1])


@output_of_tick.register(DeferSignal)
def _defer_signal_output(operator: DeferSignal, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    rows, signals = inputs
    if not signals.tick_changes:
        return Counter()
    since = max((at + 1 for at, came in enumerate(signals.changes[:-1]) if came), default=0)
    return sum_bags(rows.changes[since:])


# --- every-tick operator: emit all current rows again in each tick --------------------------------


@dataclass(frozen=True, slots=True)
class EveryTick(TickDependent):
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

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return all(inputs)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(bounded=False, append=True, det=rows.det and self.nondet is None)

    def required_facts(self) -> tuple[Need, ...]:
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
class MultisetDelta(TickDependent):
    """Each row, with as many copies as this tick has in excess of the previous tick.

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

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True, det=inputs[0].det and self.nondet is None)

    def required_facts(self) -> tuple[Need, ...]:
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
class EveryTickStep(RowStep):
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
class MultisetDeltaStep(RowStep):
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
def _on_spark(operator: Operator, context: BatchContext) -> DataFrame:
    # A batch has one tick.
    return context.inputs[0]


@output_of_tick.register(EveryTick)
def _every_tick_output(operator: EveryTick, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return inputs[0].now


@output_of_tick.register(MultisetDelta)
def _multiset_delta_output(operator: MultisetDelta, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return inputs[0].tick_changes - sum_bags(inputs[0].changes[-2:-1])
