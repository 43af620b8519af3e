"""Distinct and unique operators: one copy of each row, with or without state expiry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

from headrace.arrangement.batch import Layout, select, take
from headrace.columns.column_stream import (
    ColumnStream,
    build_stream,
    check_plain,
    decline_marked,
    sum_weights,
    with_one_zero,
)
from headrace.columns.columns import FAILS, WEIGHT, Columns
from headrace.columns.slot_forms import CountForm
from headrace.expr.constructors import col
from headrace.expr.polars_columns import NotLowered, dtype_of
from headrace.expr.tree import Column
from headrace.graph.node import ALTERABLE, Operator, identity_lineage
from headrace.graph.operator_declarations import (
    EVENT_TIME,
    Facts,
    KeyedSlot,
    Need,
    Placement,
    Port,
    calendar_slots,
    place_by_key,
)
from headrace.lowering.forms import (
    ArrangedPlan,
    ArrangedState,
    ColumnarContext,
    PreReduction,
    choose_reduction,
    lower_operator,
    register_arranged,
)
from headrace.lowering.reference import Bag, Bags, Examples, OperatorInput, answer_of_bags, output_of_tick
from headrace.lowering.round_history import SetLoopStep
from headrace.lowering.row_code import RowCode, tuple_source
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, register_loop_step, register_step, step_for
from headrace.operators.event_time.due_calendar import ExpiringStep
from headrace.operators.lifetime import (
    Lifetime,
    WithLifetime,
    describe_lifetime,
    rows_by_lifetime,
    tick_needs,
    with_lifetimes,
)
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from headrace.columns.slot_forms import SlotForm
    from headrace.expr.tree import Expr
    from headrace.expr.types import Field, Rows, Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.forms import ArrangedOperator, BatchContext
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.time_spans import Span


class DistinctOperator(WithLifetime):
    """Base of operators that emit one copy of each row.

    columns: every column of the input, as expressions; a field of each subclass.
    """

    __slots__ = ()
    picks_representative: ClassVar[bool] = True
    columns: tuple[Expr, ...]

    def ports(self) -> tuple[Port, ...]:
        return (Port("input"),)

    def output(self, context: CheckContext) -> tuple[Field, ...]:
        context.all_columns(self.columns)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return None

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"copies": KeyedSlot(bare=appends[0])}

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def placement(self) -> Placement:
        return place_by_key(self.columns)


@dataclass(frozen=True, slots=True)
class Distinct(DistinctOperator):
    """Each row once: emitted with its first copy and retracted with its last.

    A tick without changes emits nothing. With lifetime TICK, each tick is separate, and rows keep the order
    of their first copies.

    columns: every column of the input, as expressions.
    nondet:  reason why results may depend on the cut into ticks, if the lifetime is TICK.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.distinct(), numbers=[1, 2, 1])
    + 1
    + 2
    """

    kind: ClassVar[str] = "distinct"
    examples: ClassVar[Examples] = {"distinct": lambda x, y: y.distinct()}
    runs_in_rounds: ClassVar[bool] = True
    reads_net_changes: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        if self.lifetime is Lifetime.TICK:
            return rows.but(append=True, once=True, det=rows.det and self.nondet is None)
        return rows.but(ordered=False, once=True)

    def required_facts(self) -> tuple[Need, ...]:
        return tick_needs((self.lifetime,))

    def refused_in_changing_loop(self, goes_round: Sequence[bool]) -> str:
        return ""

    def describe(self) -> str:
        return with_lifetimes("", (self.lifetime,))


@dataclass(frozen=True, slots=True)
class Unique(DistinctOperator):
    """The first occurrence of each row, in row order, emitted at once.

    Equivalent to `distinct`, but keeps the order if there is one. For a table, a row is retracted with its
    last copy. With lifetime TICK, a row passes once in each tick in which it arrives. An empty tick emits
    nothing.

    columns: every column of the input, as expressions.

    >>> from headrace.testing import show
    >>> show(lambda numbers: numbers.unique(), numbers=[3, 1, 3, 2, 1])
    + 3
    + 1
    + 2
    """

    kind: ClassVar[str] = "unique"
    examples: ClassVar[Examples] = {"append": lambda x, y: x.unique(), "table": lambda x, y: y.unique()}
    columns: tuple[Expr, ...]
    lifetime: Lifetime = Lifetime.STATIC
    nondet: str | None = field(default=None, metadata=ALTERABLE)

    def required_facts(self) -> tuple[Need, ...]:
        if self.lifetime is Lifetime.STATIC:
            return ()
        return (
            Need(
                0,
                "append",
                "each tick is answered for itself:\nwhat an earlier one answered cannot be taken back",
                'use lifetime="static", or feed it from a stream that only grows',
            ),
        )

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        if self.lifetime is Lifetime.TICK:
            return rows.but(det=rows.det and self.nondet is None)
        return rows.but(ordered=rows.ordered and rows.append, once=True)

    def describe(self) -> str:
        return ", ".join(describe_lifetime(self.lifetime))


@dataclass(frozen=True, slots=True)
class ExpiringDistinct(Operator):
    """Each row once, emitted with its first copy and forgotten when the watermark passes its time.

    columns: every column of the input, as expressions. time: the column with the watermark.
    width:   length of the time intervals that are forgotten together.

    The output equals that of `distinct`, since a row whose time has passed cannot arrive again.
    A tick without rows emits nothing.

    >>> from headrace import col
    >>> from headrace.testing import show
    >>> show(lambda at: at.watermark(col.value, lateness=5).distinct(), at=[1, 2, 1])
    + 1
    + 2
    """

    described_as: ClassVar[str] = "DistinctOnTime"
    kind: ClassVar[str] = "distinct"
    plan_name: ClassVar[str | None] = "distinct_on_time"
    examples: ClassVar[Examples] = {"of a time": lambda x, y: x.watermark(col.a, lateness=1).distinct()}
    picks_representative: ClassVar[bool] = True
    columns: tuple[Expr, ...]
    time: str
    width: Span

    def ports(self) -> tuple[Port, ...]:
        return (Port("rows"), Port("watermark", completeness=True))

    def output(self, context: CheckContext) -> tuple[Field, ...]:
        context.all_columns(self.columns)
        made = context.with_state_expiry(Distinct(self.columns))
        context.require_as_built_by_flow(made, self, "it forgets what could still come")
        context.require_watermark(1, Column(self.time), 0)
        return context.input.fields

    def unservable(self) -> Unservable | None:
        return EVENT_TIME

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]), {})

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        copies = KeyedSlot(bare=False)
        return {"copies": copies, **calendar_slots("", copies)}

    def free_of_negative_zero(self, inputs: Sequence[bool]) -> bool:
        return True

    def required_facts(self) -> tuple[Need, ...]:
        return (
            Need(
                0,
                "append",
                "a row that was forgotten could not be taken back",
                "put the watermark behind what takes rows back",
            ),
        )

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False, once=True)

    def placement(self) -> Placement:
        return place_by_key(self.columns, None)

    def describe(self) -> str:
        return f"forgets what {self.time} has passed"


@register_step(ExpiringDistinct)
class ExpiringDistinctStep(ExpiringStep):
    """Step of distinct with state expiry. Slot: copies, row -> 1."""

    def __init__(self, node: Node, writer: StepWriter) -> None:
        operator = node.operator
        assert isinstance(operator, ExpiringDistinct)
        super().__init__(node, writer, operator.time, operator.width)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.copies"), *self._forgetting.slots())

    def consume_on_time(self, row: RowCode) -> None:
        writer, code = self.writer, self.code
        key = writer.fresh("row")
        code.line(f"{key} = {writer.row_key(self.node.schema, row.columns)}")
        with code.block(f"if {self.slot_getter('copies')}({key}) is None:"):
            code.line(f"{self.slot('copies')}[{key}] = 1")
            self._forgetting.schedule_expiry(self._forgetting.bucket(row.columns[self._at]), key)
            self.emit_unpacked(key)

    def finish(self) -> None:
        with self._forgetting.each_passed() as key:
            self.code.line(f"del {self.slot('copies')}[{key}]")


# --- row steps ------------------------------------------------------------------------------------


class AppendDistinctStep(RowStep):
    """Distinct over an append stream, which emits the first copy at once.

    of_a_tick: the state is dropped at the end of the tick.
    """

    keeps_state = True

    def __init__(self, node: Node, writer: StepWriter, *, of_a_tick: bool = False) -> None:
        super().__init__(node, writer)
        self.of_a_tick = of_a_tick

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.copies", transient=self.of_a_tick),)

    def consume(self, port: int, row: RowCode) -> None:
        writer, schema = self.writer, self.node.schema
        key = writer.entry(schema, row.columns)
        if key == tuple_source(row.columns) and row.whole is not None:
            key, first = row.whole, row
        else:
            if not key.isidentifier():
                name = writer.fresh("row")
                self.code.line(f"{name} = {key}")
                key = name
            first = RowCode((key,))
        with self.code.block(f"if {self.slot_getter('copies')}({key}) is None:"):
            self.code.line(f"{self.slot('copies')}[{key}] = 1")
            if len(schema.fields) > 1 and first is not row:
                # Keys are canonical (one zero, one NaN), and so is what leaves.
                first = RowCode(writer.unpack(schema, key), key)
            self.emit(first)


class TableDistinctStep(RowStep):
    """Distinct over a table, which counts copies and emits crossings of 0 per tick."""

    keeps_state = True
    consolidates = True
    sites = 2

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.before = writer.node_variable("before", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.copies"),)

    def begin(self) -> None:
        self.code.line(f"{self.before} = {{}}")

    def consume(self, port: int, row: RowCode) -> None:
        key = self.writer.fresh("row")
        self.code.line(f"{key} = {self.writer.row_key(self.node.schema, row.columns)}")
        self.state("copies").add_count(key, row.copies, self.before)

    def finish(self) -> None:
        writer = self.writer
        key, old, new = writer.fresh("row"), writer.fresh("old"), writer.fresh("new")
        with self.code.block(f"for {key}, {old} in {self.before}.items():"):
            self.code.line(f"{new} = {self.slot_getter('copies')}({key}) or 0")
            columns = writer.unpack(self.node.schema, key)
            with self.code.block(f"if {new} > 0 >= {old}:"):
                self.emit(RowCode(columns, key, "1"))
            with self.code.block(f"elif {old} > 0 >= {new}:"):
                self.emit(RowCode(columns, key, "-1"))


@step_for.register(Distinct)
@step_for.register(Unique)
def _step(operator: DistinctOperator, node: Node, writer: StepWriter) -> RowStep:
    if operator.lifetime is Lifetime.TICK:
        return AppendDistinctStep(node, writer, of_a_tick=True)
    return distinct_step(node, writer)


def distinct_step(node: Node, writer: StepWriter) -> RowStep:
    """Choose the step of distinct; append streams have a cheaper one."""
    if writer.is_append(node.inputs[0]):
        return AppendDistinctStep(node, writer)
    return TableDistinctStep(node, writer)


register_loop_step(Distinct)(SetLoopStep)


# --- other forms ----------------------------------------------------------------------------------


@lower_operator.register(Distinct)
@lower_operator.register(Unique)
@lower_operator.register(ExpiringDistinct)
def _on_spark(operator: DistinctOperator | ExpiringDistinct, context: BatchContext) -> DataFrame:
    return context.inputs[0].distinct()


@answer_of_bags.register(Distinct)
@answer_of_bags.register(Unique)
def _answer(operator: DistinctOperator, node: Node, inputs: Bags) -> Bag:
    return Counter(set(inputs[0][1]))


@output_of_tick.register(Distinct)
@output_of_tick.register(Unique)
def _output_of_tick(operator: DistinctOperator, node: Node, inputs: Sequence[OperatorInput]) -> Bag:
    return answer_of_bags(operator, node, rows_by_lifetime((operator.lifetime,), inputs))


@dataclass(frozen=True)
class DistinctRows(PreReduction):
    """Reduction to distinct rows; on a table, with summed weights."""

    def reduce_lazily(self, stream: ColumnStream) -> pl.LazyFrame:
        if not stream.append:
            return sum_weights(stream).frame
        own = [str(at) for at in range(len(stream.schema.fields))]
        marks = [pl.col(FAILS).any()] * stream.checked
        return stream.frame.group_by(own, maintain_order=True).agg(*marks)

    def reduce_rows(self, stream: ColumnStream) -> Rows:
        frame = self.reduce_lazily(stream).collect()
        if stream.checked:
            decline_marked(frame)
        return Columns(stream.schema, stream.append, frame).rows()


@choose_reduction.register(Distinct)
def _distinct(operator: Distinct, schema: Schema, append: bool) -> PreReduction:
    if operator.lifetime is Lifetime.TICK:
        raise NotLowered("it answers each tick for itself")
    check_plain(schema)
    return DistinctRows()


@register_arranged(Distinct, Unique)
@dataclass(frozen=True)
class DistinctPlan(ArrangedPlan):
    """Plan for a distinct over frames. append: of the input. output_append: of the output."""

    runs_in_loops = True
    node: int
    schema: Schema
    append: bool
    output_append: bool

    @classmethod
    def of(cls, context: ColumnarContext) -> Self:
        operator = context.node.operator
        if isinstance(operator, Distinct | Unique) and operator.lifetime is Lifetime.TICK:
            raise NotLowered("it answers each tick for itself")
        plan = cls(context.node.id, context.node.schema, context.appends[0], context.append)
        if not plan.layout.keys:
            raise NotLowered("rows without columns stay in rows")
        return plan

    @property
    def slot(self) -> str:
        return f"{self.node}.copies"

    @property
    def bare(self) -> bool:
        """Return whether the key of a single-column row is the column's value."""
        return self.append

    @cached_property
    def layout(self) -> Layout:
        types = {str(at): dtype_of(f.type) for at, f in enumerate(self.schema.fields)}
        nullable = any(f.nullable for f in self.schema.fields)
        return Layout({**types, WEIGHT: pl.Int64()}, tuple(types), (WEIGHT,), nullable)

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        # Row -> its copies, or 1 where rows are never retracted.
        types = tuple(f.type for f in self.schema.fields)
        return {self.slot: CountForm(self.layout, types, self.bare and len(types) == 1, ())}

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarDistinct(self, state)


@dataclass(slots=True)
class ColumnarDistinct:
    """Distinct in large ticks, over an arrangement that small ticks read as a slot."""

    plan: DistinctPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the rows that appear or disappear, in order of their first occurrence."""
        plan = self.plan
        news = DistinctRows().reduce_lazily(with_one_zero(inputs[0])).collect()
        if FAILS in news.columns:
            decline_marked(news)
            news = news.drop(FAILS)
        if plan.append:
            news = news.with_columns(pl.lit(1, pl.Int64()).alias(WEIGHT))
        spine = self.slots.spine(plan.slot)
        (before,) = spine.sums(plan.layout.keys_of(news))
        after = before + news[WEIGHT].to_numpy()
        if plan.append:
            at = np.flatnonzero(before == 0)
            made = added = take(news, at)
        else:
            crossed = (after > 0).astype(np.int64) - (before > 0)
            at = np.flatnonzero(crossed)
            made, added = take(news, at), news
            made.replace_column(made.get_column_index(WEIGHT), pl.Series(WEIGHT, crossed[at]))
        self.slots.prepare(plan.slot, added)
        names = [str(number) for number in range(len(plan.schema.fields))]
        if not plan.output_append:
            names.append(WEIGHT)
        return build_stream(Columns(plan.schema, plan.output_append, select(made, names)))
