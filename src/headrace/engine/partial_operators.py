"""Operators that an engine substitutes to aggregate rows before sending them, and to merge the results.

They are never written by users: an engine whose rows are distributed puts a partial operator before an
exchange. It aggregates each chunk of a tick on its own, without state. Its output is never a table, so
`append` is its only fact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

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
from headrace.lowering.forms import apply_operator
from headrace.lowering.row_code import MappingCode, RowCode, key_columns
from headrace.lowering.slot import Slot
from headrace.lowering.step import Step, register_step, step_for
from headrace.operators.aggregate.accumulator import Group
from headrace.operators.aggregate.operator import AggregateStep, group_keys, group_writer
from headrace.operators.event_time.grid_windows import ClosedWindowStep, GridStep, UpdatedWindowStep
from headrace.operators.event_time.window import Emit, Window
from headrace.operators.event_time.window_shapes import Grid
from headrace.operators.sink import Sink
from headrace.operators.top_k import TopKStep

if TYPE_CHECKING:
    from collections.abc import Mapping

    from headrace.columns.column_stream import ColumnStream
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.check_context import CheckContext
    from headrace.graph.monotone_columns import MonotoneColumns
    from headrace.graph.node import Columns, Node
    from headrace.graph.operator_declarations import Lineage, SlotLayout, Unservable
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.aggregate.operator import Aggregate
    from headrace.operators.top_k import TopK


class SubstitutedOperator(Operator):
    """Base of operators that an engine substitutes for one of the user's."""

    __slots__ = ()

    def output(self, context: CheckContext) -> Columns:
        raise context.unbuildable_error(f"{self.kind} is made by an engine, and not written")

    def unservable(self) -> Unservable | None:
        return None


@dataclass(frozen=True, slots=True)
class ExchangeSink(Sink):
    """Sink whose rows go on to another stage of the flow, where equal ones need not be added up."""


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
    nets: ClassVar[bool] = True
    of: Aggregate
    said: str

    def ports(self) -> tuple[Port, ...]:
        return (Port("input", blocking=True, why="a further row could belong to a group"),)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
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

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        rows = inputs[0]
        return rows.but(append=self.appends and rows.bounded, ordered=False, once=True)

    def growth(self, inputs: Sequence[MonotoneColumns | None]) -> MonotoneColumns | None:
        return self.of.growth(inputs)

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

    def gives(self, inputs: Sequence[Facts]) -> Facts:
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
# One row per group and slice replaces the rows in it: see `headrace.operators.event_time.slices`.

SLICE = "slice"
"""Column with the start of a slice."""


@dataclass(frozen=True, slots=True)
class PartialWindow(SubstitutedOperator):
    """Partial window aggregate of a chunk of a tick: one row per group and slice, with partial sums."""

    kind: ClassVar[str] = "partial window"
    of: Window

    def ports(self) -> tuple[Port, ...]:
        return (Port("rows", blocking=True, why="a further row could belong to a group"),)

    def gives(self, inputs: Sequence[Facts]) -> Facts:
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

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return self.of.gives(inputs)

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
class PartialAggregateStep(Step):
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
def _(operator: MergedAggregate, node: Node, writer: StepWriter) -> Step:
    return MergedAggregateStep(node, writer, operator)


@step_for.register(PartialTopK)
def _(operator: PartialTopK, node: Node, writer: StepWriter) -> Step:
    return PartialTopKStep(node, writer, operator)


@step_for.register(PartialWindow)
def _(operator: PartialWindow, node: Node, writer: StepWriter) -> Step:
    return PartialWindowStep(node, writer, operator)


@step_for.register(MergedWindow)
def _(operator: MergedWindow, node: Node, writer: StepWriter) -> Step:
    assert isinstance(operator.of.shape, Grid), "only windows on a grid have slices"
    aggregations = tuple(aggregation for _, aggregation in operator.of.aggregations)
    group = Group(writer, operator.rows, aggregations, appends=True)
    step = MergedClosedWindowStep if operator.of.emit is Emit.CLOSE else MergedUpdatedWindowStep
    return step(node, writer, operator.over_slices, operator.of.shape, group)
