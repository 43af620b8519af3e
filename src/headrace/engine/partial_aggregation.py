"""Operators that an engine substitutes to aggregate rows before sending them, and to merge the results.

They are never written by users: an engine whose rows are distributed puts a partial operator before an
exchange. It aggregates each chunk of a tick on its own, without state. Its output is never a table, so
`append` is its only fact.

On columns they run as well if all accumulators hold sums alone. With any other one, the chunk is reduced in
columns, but its groups leave it as rows, and the merged ones are kept in rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, Self

from headrace.arrangement.batch import Numbers
from headrace.columns.column_stream import ColumnStream, empty_stream
from headrace.columns.columns import FAILS
from headrace.columns.expressions import columns_without_bounds
from headrace.expr.check import check
from headrace.expr.polars_columns import NotLowered, dtype_of
from headrace.expr.tree import Column
from headrace.graph.node import Operator, identity_lineage
from headrace.graph.operator_declarations import (
    ANYWHERE,
    WHOLE,
    Facts,
    KeyedSlot,
    Placement,
    Port,
    place_by_key,
)
from headrace.lowering.forms import (
    ColumnarContext,
    PreReduction,
    apply_operator,
    choose_reduction,
    reduced_step_for,
    register_arranged,
)
from headrace.lowering.row_code import MappingCode, RowCode, key_columns
from headrace.lowering.slot import Slot
from headrace.lowering.step import RowStep, register_step, step_for
from headrace.operators.aggregate.aggregate import AggregateStep, group_keys, group_writer
from headrace.operators.aggregate.aggregation import Group
from headrace.operators.aggregate.columnar_aggregate import AggregatePlan, write_group_reader
from headrace.operators.aggregate.group_columns import GroupColumns
from headrace.operators.aggregate.partial_forms import HEIGHT, ROOM, GroupedRows, PartialForm, group_parts
from headrace.operators.aggregate.sum_columns import sum_widths
from headrace.operators.endpoints import SinkOperator
from headrace.operators.event_time.window import ClosedWindowStep, Emit, GridStep, UpdatedWindowStep, Window
from headrace.operators.time_spans import Grid
from headrace.operators.top_k import TopKStep
from headrace.requirements import pl

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, MonotoneColumns, SlotLayout, Unservable
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.aggregate.aggregate import Aggregate
    from headrace.operators.aggregate.aggregation import Accumulator
    from headrace.operators.top_k import TopK


class SubstitutedOperator(Operator):
    """Base of operators that an engine substitutes for one of the user's."""

    __slots__ = ()

    def output(self, context: CheckContext) -> Columns:
        raise context.unbuildable_error(f"{self.kind} is made by an engine, and not written")

    def unservable(self) -> Unservable | None:
        return None


@dataclass(frozen=True, slots=True)
class ExchangeSink(SinkOperator):
    """Sink whose rows are sent to another stage of the flow; they need not be consolidated."""


@apply_operator.register(ExchangeSink)
def _on_columns(
    operator: ExchangeSink, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    from headrace.columns.column_stream import check_plain, sum_weights
    from headrace.columns.columns import WEIGHT

    (stream,) = inputs
    check_plain(schema)
    if append:
        return stream
    if not stream.checked:
        stream = stream.kept()
        whole = stream.at_hand
        # Where no row takes back another, there are no fewer of them in the end.
        if whole is not None and bool((whole[WEIGHT].to_numpy() > 0).all()):
            return stream
    return sum_weights(stream)


@dataclass(frozen=True, slots=True)
class PartialAggregate(SubstitutedOperator):
    """Partial aggregate of a chunk of a tick, with one row per group: keys, row count, partial sums.

    of:   the aggregate that this is a part of, over the columns of what this reads.
    said: what that one describes itself as.
    """

    kind: ClassVar[str] = "partial aggregate"
    reads_net_changes: ClassVar[bool] = True
    of: Aggregate
    said: str

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could belong to a group"),)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True, ordered=False, once=True)

    @property
    def keys(self) -> tuple[tuple[str, Expr], ...]:
        """Keys under their output names, with their input columns."""
        return tuple((expr.name, expr) for _, expr in self.of.keys if isinstance(expr, Column))

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys),)

    def placement(self) -> Placement:
        return ANYWHERE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        return self.of.expressions()

    def describe(self) -> str:
        return self.said


@dataclass(frozen=True, slots=True)
class MergedAggregate(SubstitutedOperator):
    """Aggregate over the rows of partial aggregates, with the state of the original aggregate.

    of:      the aggregate. rows: the schema of what that reads. appends: whether these are never retracted.
    keys:    its keys, in the rows that come here.
    said:    what it described itself as, before it was divided.
    """

    kind: ClassVar[str] = "aggregate"
    of: Aggregate
    keys: tuple[tuple[str, Expr], ...]
    rows: Schema
    appends: bool
    said: str

    def ports(self) -> tuple[Port, ...]:
        return self.of.ports()

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=self.appends and rows.bounded, ordered=False, once=True)

    def monotone_columns(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        return self.of.monotone_columns(inputs)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (dict(self.keys),)

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return {"groups": KeyedSlot()}

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys))

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys

    def describe(self) -> str:
        return self.said


@dataclass(frozen=True, slots=True)
class PartialTopK(SubstitutedOperator):
    """Top-k of each group over a chunk of a tick's rows, the only candidates for the final result.

    Correct only for rows that are never retracted.
    """

    kind: ClassVar[str] = "candidates"
    of: TopK

    def ports(self) -> tuple[Port, ...]:
        return self.of.ports()

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(ordered=False)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return (identity_lineage(inputs[0]),)

    def placement(self) -> Placement:
        return ANYWHERE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        return self.of.expressions()

    def describe(self) -> str:
        return self.of.describe()


# -- windows ------------------------------------------------------------------------------------------
#
# One row per group and slice replaces the rows in it: see `headrace.operators.event_time.due_calendar`.

SLICE = "slice"
"""Column with the start of a slice."""


@dataclass(frozen=True, slots=True)
class PartialWindow(SubstitutedOperator):
    """Partial window aggregate of a chunk of a tick: one row per group and slice, with partial sums."""

    kind: ClassVar[str] = "partial window"
    of: Window

    def ports(self) -> tuple[Port, ...]:
        return (Port("rows", blocking=True, why="a further row could belong to a group"),)

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return inputs[0].but(append=True, ordered=False, once=True)

    def placement(self) -> Placement:
        return ANYWHERE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        return self.of.expressions()

    def describe(self) -> str:
        return self.of.describe()


@dataclass(frozen=True, slots=True)
class MergedWindow(SubstitutedOperator):
    """Windowed aggregate over partial rows, with the state of the original window.

    of:   the window. keys: its keys, in the rows that come here. rows: the schema of what `of` reads.
    """

    kind: ClassVar[str] = "window"
    of: Window
    keys: tuple[tuple[str, Expr], ...]
    rows: Schema

    @property
    def over_slices(self) -> Window:
        """Return the window over partial rows; its aggregates still refer to the original rows."""
        return replace(self.of, keys=self.keys, time=Column(SLICE))

    def ports(self) -> tuple[Port, ...]:
        return self.of.ports()

    def output_facts(self, inputs: Sequence[Facts]) -> Facts:
        return self.of.output_facts(inputs)

    def lineage(self, inputs: Sequence[Schema], output: Schema) -> tuple[Lineage, ...]:
        return dict(self.keys), {}

    def state(self, appends: Sequence[bool]) -> Mapping[str, SlotLayout]:
        return self.of.state(appends)

    def placement(self) -> Placement:
        return place_by_key(tuple(expr for _, expr in self.keys), None) if self.keys else WHOLE

    def expressions(self) -> Iterator[tuple[str, Expr]]:
        yield from self.keys

    def describe(self) -> str:
        return self.of.describe()


# --- steps of partial operators: partial results for chunks of a tick, and their merge ------------


@register_step(PartialAggregate)
class PartialAggregateStep(RowStep):
    """Partial aggregate. `touched`: each group's list for this tick, dropped at its end."""

    operator: PartialAggregate
    keeps_state = True
    consolidates = True

    def __init__(self, node: Node, writer: StepWriter) -> None:
        super().__init__(node, writer)
        self.keys = group_keys(self.operator.of)
        self.schema = self.input_schema()
        self.touched = writer.node_variable("touched", node.id)
        self.group = group_writer(self.operator.of, node, writer)

    def begin(self) -> None:
        self.code.line(f"{self.touched} = {{}}")

    def consume(self, port: int, row: RowCode) -> None:
        key, group = self.writer.fresh("key"), self.writer.fresh("group")
        self.writer.assign_key(key, self.keys, self.schema, row.columns)
        MappingCode(self.writer, self.touched).get_or_add(group, key, self.group.empty)
        self.group.add(group, row)

    def finish(self) -> None:
        key, group = self.writer.fresh("key"), self.writer.fresh("group")
        with self.code.block(f"for {key}, {group} in {self.touched}.items():"):
            columns = (*key_columns(key, len(self.keys)), *self.group.partial_columns(group))
            self.emit(RowCode(columns, None, "1"))


def merged_group_writer(operator: MergedAggregate, writer: StepWriter) -> Group:
    """Create the group writer of an aggregate over partial groups."""
    aggregations = [aggregation for _, aggregation in operator.of.aggregations]
    return Group(writer, operator.rows, aggregations, appends=operator.appends)


class MergedAggregateStep(AggregateStep):
    """Aggregate over partial groups, each covering a chunk of the rows."""

    def __init__(self, node: Node, writer: StepWriter, operator: MergedAggregate) -> None:
        keys = tuple(expr for _, expr in operator.keys)
        group = merged_group_writer(operator, writer)
        super().__init__(node, writer, keys, operator.of.lifetime, group)

    def fold(self, group: str, row: RowCode) -> None:
        self.group.merge_partial(group, row.columns[len(self.keys) :])


class PartialTopKStep(TopKStep):
    """Top-k of each group over a tick's rows only."""

    def __init__(self, node: Node, writer: StepWriter, operator: PartialTopK) -> None:
        super().__init__(node, writer)
        self.operator = operator.of

    def slots(self) -> tuple[Slot, ...]:
        return (Slot(f"{self.node.id}.groups", transient=True),)


class PartialWindowStep(GridStep):
    """Partial window. `sums`: (key, slice) -> the group's list, dropped at the end of the tick."""

    def __init__(self, node: Node, writer: StepWriter, operator: PartialWindow) -> None:
        assert isinstance(operator.of.shape, Grid), "only windows on a grid have slices"
        super().__init__(node, writer, replace(operator.of, emit=Emit.CLOSE), operator.of.shape)
        self._sums = writer.node_variable("sums", node.id)

    def slots(self) -> tuple[Slot, ...]:
        return ()

    def begin(self) -> None:
        super().begin()
        self.code.line(f"{self._sums} = {{}}")

    def fold(self, key: str, time: str, row: RowCode) -> None:
        entry, group = self.writer.fresh("entry"), self.writer.fresh("group")
        self.code.line(f"{entry} = ({key}, {self.start})")
        MappingCode(self.writer, self._sums).get_or_add(group, entry, self.group.empty)
        self.group.add(group, row)

    def finish(self) -> None:
        key, start, group = (self.writer.fresh(name) for name in ("key", "start", "group"))
        keys = key_columns(key, len(self.operator.keys))
        with self.code.block(f"for ({key}, {start}), {group} in {self._sums}.items():"):
            self.emit(RowCode((*keys, start, *self.group.partial_columns(group))))


class MergedClosedWindowStep(ClosedWindowStep):
    """Windows over partial groups, each covering rows of a slice."""

    def add(self, group: str, row: RowCode) -> None:
        self.group.merge_partial(group, row.columns[len(self.operator.keys) + 1 :])


class MergedUpdatedWindowStep(UpdatedWindowStep):
    """Updated windows over partial groups, each covering rows of a slice."""

    def add(self, group: str, row: RowCode) -> None:
        self.group.merge_partial(group, row.columns[len(self.operator.keys) + 1 :])


@step_for.register(MergedAggregate)
def _(operator: MergedAggregate, node: Node, writer: StepWriter) -> RowStep:
    return MergedAggregateStep(node, writer, operator)


@step_for.register(PartialTopK)
def _(operator: PartialTopK, node: Node, writer: StepWriter) -> RowStep:
    return PartialTopKStep(node, writer, operator)


@step_for.register(PartialWindow)
def _(operator: PartialWindow, node: Node, writer: StepWriter) -> RowStep:
    return PartialWindowStep(node, writer, operator)


@step_for.register(MergedWindow)
def _(operator: MergedWindow, node: Node, writer: StepWriter) -> RowStep:
    assert isinstance(operator.of.shape, Grid), "only windows on a grid have slices"
    aggregations = tuple(aggregation for _, aggregation in operator.of.aggregations)
    group = Group(writer, operator.rows, aggregations, appends=True)
    step = MergedClosedWindowStep if operator.of.emit is Emit.CLOSE else MergedUpdatedWindowStep
    return step(node, writer, operator.over_slices, operator.of.shape, group)


def _accumulators(parts: Sequence[tuple[Expr | None, PartialForm]]) -> tuple[Accumulator, ...]:
    """Return the accumulators. Raises `NotLowered` if one holds more than sums."""
    found = tuple(partial.accumulator for _, partial in parts)
    if any(sum_widths(each) is None for each in found):
        raise NotLowered("partial groups that hold more than sums stay in rows")
    return found


@apply_operator.register(PartialAggregate)
def _partial_groups(
    operator: PartialAggregate, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    (stream,) = inputs
    groups = choose_reduction(operator, stream.schema, stream.append)
    assert isinstance(groups, GroupedRows)
    _accumulators(groups.parts)
    frame = groups.reduce_lazily(stream)
    if not groups.keys:
        # A group that no row reaches is not there.
        frame = frame.filter(pl.col(HEIGHT) > 0)
    names = [f"k{at}" for at in range(len(groups.keys))]
    names += [f"v{at}" for at in range(len(schema.fields) - len(names))]
    columns = [
        pl.col(name).cast(dtype_of(field.type)).alias(str(at))
        for at, (name, field) in enumerate(zip(names, schema.fields, strict=True))
    ]
    checked = FAILS in frame.collect_schema()
    frame = frame.select(*columns, *[FAILS] * checked)
    known = tuple(columns_without_bounds(schema))
    return ColumnStream(schema, append, frame, known, stream.most, stream.most, checked)


@choose_reduction.register(PartialAggregate)
@choose_reduction.register(PartialWindow)
def _partial(operator: PartialAggregate | PartialWindow, schema: Schema, append: bool) -> PreReduction:
    return choose_reduction(operator.of, schema, append)


@dataclass(frozen=True)
class MergedGroups(GroupedRows):
    """Reduction of partial groups to one row per group: key, row count, and the sums of partial values."""

    @cached_property
    def _rooms(self) -> list[int]:
        """Return the bound on the sum of absolute values of each non-key column."""
        parts = chain.from_iterable(partial.rooms for _, partial in self.parts)
        return [ROOM, *parts]

    def reduce_lazily(self, stream: ColumnStream) -> pl.LazyFrame:
        keys = [stream.lower(key).value.alias(f"k{at}") for at, key in enumerate(self.keys)]
        values: list[pl.Expr] = []
        beyond: list[pl.Expr] = []
        for at, room in enumerate(self._rooms, len(self.keys)):
            most = room // max(1, stream.most)
            values.append(pl.col(str(at)).to_physical())
            beyond.append(~values[-1].is_between(-most, most))
        noted = stream.noting(*beyond)
        sums = [value.sum().alias(f"v{at}") for at, value in enumerate(values)]
        marks = [pl.col(FAILS).any()] * noted.checked
        if not keys:
            return noted.frame.select(*sums, *marks, pl.len().alias(HEIGHT))
        return noted.frame.group_by(*keys, maintain_order=True).agg(*sums, *marks)

    def terms(self, stream: ColumnStream) -> tuple[list[pl.Series], list[Numbers]] | None:
        frame = stream.collected()
        keys = [frame[str(at)].alias(f"k{at}") for at in range(len(self.keys))]
        values = [
            column.to_physical().cast(pl.Int64, strict=False) for column in frame.get_columns()[len(keys) :]
        ]
        for value, room in zip(values, self._rooms, strict=True):
            most = min(room, ROOM) // max(1, frame.height)
            if value.null_count() or not value.is_between(-most, most).all():
                return None
        return keys, [value.to_numpy() for value in values]


class ReducedPartialStep(RowStep):
    """Partial aggregate or window over already reduced input, which it emits unchanged."""

    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter, groups: GroupedRows) -> None:
        super().__init__(node, writer)
        self.groups = groups

    def finish(self) -> None:
        names = tuple(self.writer.fresh("part") for _ in self.groups.types)
        with self.code.block(f"for {', '.join(names)}, in {self.writer.buffer(self.node.inputs[0])}:"):
            self.emit(RowCode(names, None, "1"))


@reduced_step_for.register(PartialAggregate)
@reduced_step_for.register(PartialWindow)
def _reduced_step(
    operator: PartialAggregate | PartialWindow, reduction: PreReduction, node: Node, writer: StepWriter
) -> RowStep:
    assert isinstance(reduction, GroupedRows)
    return ReducedPartialStep(node, writer, reduction)


@register_arranged(MergedAggregate)
class MergedPlan(AggregatePlan):
    """Plan for the merge of partial groups over frames."""

    @classmethod
    def of(cls, context: ColumnarContext) -> Self:
        operator, (schema,) = context.node.operator, context.schemas
        assert isinstance(operator, MergedAggregate)
        if context.append:
            raise NotLowered("it answers once")
        parts = group_parts(operator.of.aggregations, operator.rows, operator.appends)
        keys = tuple(expr for _, expr in operator.keys)
        reduction = MergedGroups(keys, tuple(check(expr, schema).type for expr in keys), parts)
        groups = GroupColumns(reduction, _accumulators(parts), context.node.schema)
        reduction.reduce_lazily(empty_stream(schema, True))
        groups.layout.exact  # noqa: B018  # raises where a type has no column
        return cls(context.node.id, groups)

    def write_reader(self, node: Node, writer: StepWriter, name: str) -> None:
        operator = node.operator
        assert isinstance(operator, MergedAggregate)
        write_group_reader(writer, name, len(operator.keys), merged_group_writer(operator, writer))
