"""Window functions in large ticks, over an arrangement of each partition's rows in order.

The partitions that a tick changes are fetched by one probe, lie one after the other, and are answered as they
were and as they are; rows whose answers differ are the output.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.arrangement.batch import Numbers, batch_of, concat_frames, differing, select, take, values_at
from headrace.columns.column_stream import (
    ColumnStream,
    build_stream,
    decline_marked,
    empty_stream,
    sum_weights,
)
from headrace.columns.columns import WEIGHT, Columns, constant_weights
from headrace.columns.slot_forms import RowsForm, RowsInOrder, rows_in_order
from headrace.expr.polars_columns import NotLowered, dtype_of
from headrace.lowering.forms import ArrangedPlan, ArrangedState, ColumnarContext, register_arranged
from headrace.operators.aggregate.aggregation import Accumulator, Aggregation, accumulator_for
from headrace.operators.aggregate.counts import CountRows, CountValues
from headrace.operators.aggregate.extremes import Maximum, Minimum
from headrace.operators.aggregate.moments import PowerSums
from headrace.operators.aggregate.sum_columns import result_of, split, sum_widths
from headrace.operators.aggregate.sums import FloatTotals
from headrace.operators.over.over import OverAggregate, OverStep
from headrace.operators.over.partitions import NEGATIVE, ROWS
from headrace.operators.over.row_functions import (
    CumeDist,
    DenseRank,
    Lag,
    NthValue,
    Ntile,
    PercentRank,
    Rank,
    RowNumber,
)
from headrace.operators.over.window_function import FrameUnit, WindowFrame
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from headrace.columns.slot_forms import SlotForm
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import Node
    from headrace.lowering.forms import ArrangedOperator
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter


@dataclass(frozen=True, slots=True)
class Partitions:
    """For each row, the range of its partition, and the range of its peers."""

    first: Numbers
    end: Numbers
    first_peer: Numbers
    end_peer: Numbers

    @property
    def at(self) -> Numbers:
        return np.arange(len(self.first))

    @property
    def size(self) -> Numbers:
        return self.end - self.first


def spans(numbers: Numbers) -> tuple[Numbers, Numbers]:
    """Return, for each row, the first position with its number, and the position after the last."""
    if not len(numbers):
        return numbers, numbers
    starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
    lengths = np.diff(starts, append=len(numbers))
    return np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)


Compute: TypeAlias = "Callable[[Partitions, Sequence[pl.Series]], pl.Series]"


@dataclass(frozen=True)
class PartitionAnswer:
    """A window function: its arguments and its computation. `compute` raises `ColumnarDeclined`."""

    exprs: tuple[Expr, ...]
    compute: Compute


@singledispatch
def answer_of(function: Any, frame: WindowFrame | None, schema: Schema) -> PartitionAnswer:
    """Return the columnar form of a window function. Raises `NotLowered`."""
    raise NotLowered(f"{function} over a partition stays in rows")


@answer_of.register(RowNumber)
def _row_number(function: RowNumber, frame: WindowFrame | None, schema: Schema) -> PartitionAnswer:
    return PartitionAnswer((), lambda rows, values: pl.Series(rows.at - rows.first + 1))


@answer_of.register(Rank)
def _rank(function: Rank, frame: WindowFrame | None, schema: Schema) -> PartitionAnswer:
    return PartitionAnswer((), lambda rows, values: pl.Series(rows.first_peer - rows.first + 1))


@answer_of.register(DenseRank)
def _dense_rank(function: DenseRank, frame: WindowFrame | None, schema: Schema) -> PartitionAnswer:
    def ranks(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        groups = np.cumsum(rows.first_peer == rows.at)
        return pl.Series(groups - groups[rows.first] + 1)

    return PartitionAnswer((), ranks)


@answer_of.register(PercentRank)
def _percent_rank(function: PercentRank, frame: WindowFrame | None, schema: Schema) -> PartitionAnswer:
    return PartitionAnswer(
        (),
        lambda rows, values: pl.Series((rows.first_peer - rows.first) / np.maximum(rows.size - 1, 1)),
    )


@answer_of.register(CumeDist)
def _cume_dist(function: CumeDist, frame: WindowFrame | None, schema: Schema) -> PartitionAnswer:
    return PartitionAnswer((), lambda rows, values: pl.Series((rows.end_peer - rows.first) / rows.size))


@answer_of.register(Ntile)
def _ntile(function: Ntile, frame: WindowFrame | None, schema: Schema) -> PartitionAnswer:
    def tiles(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        at = rows.at - rows.first
        size, larger = np.divmod(rows.size, function.parts)
        border = larger * (size + 1)
        behind = (at - border) // np.maximum(size, 1) + larger + 1
        return pl.Series(np.where(at < border, at // (size + 1) + 1, behind))

    return PartitionAnswer((), tiles)


@answer_of.register(Lag)
def _lag(function: Lag, frame: WindowFrame | None, schema: Schema) -> PartitionAnswer:
    if function.ignore_nulls and function.offset:
        raise NotLowered(f"{function} passes over nulls row by row")
    default = () if function.default is None else (function.default,)

    def lagged(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        # No partition is longer than the numbers of all rows.
        offset = max(-len(rows.first), min(len(rows.first), function.offset))
        places = rows.at - offset
        within = (places >= rows.first) & (places < rows.end)
        found = values_at(values[0], places, within)
        if default:
            mine = values[1].cast(found.dtype)
            found = pl.select(pl.when(pl.Series(within)).then(found).otherwise(mine)).to_series()
        return found

    return PartitionAnswer((function.expr, *default), lagged)


@answer_of.register(NthValue)
def _nth_value(function: NthValue, frame: WindowFrame | None, schema: Schema) -> PartitionAnswer:
    bounds, n = _bounds(frame), function.n
    if function.ignore_nulls:
        raise NotLowered(f"{function} passes over nulls row by row")

    def value(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        low, high = bounds(rows)
        most = len(low) + 1
        places = low + min(n, most) - 1 if n > 0 else high + max(n, -most)
        return values_at(values[0], places, (low <= places) & (places < high))

    return PartitionAnswer((function.expr,), value)


@answer_of.register(Aggregation)
def _aggregate(function: Aggregation, frame: WindowFrame | None, schema: Schema) -> PartitionAnswer:
    bounds, exprs = _bounds(frame), tuple(function.arguments())
    accumulator = accumulator_for(function, schema, True)
    if isinstance(function, Minimum | Maximum):
        if frame is not None and frame.start is not None:
            raise NotLowered(f"{function} of a frame that moves stays in rows")
        return PartitionAnswer(exprs, _running(bounds, least=isinstance(function, Minimum)))
    widths = sum_widths(accumulator)
    if widths is None or isinstance(accumulator, FloatTotals | PowerSums):
        raise NotLowered(f"{function} needs every value of a frame")
    return PartitionAnswer(exprs, _totals(bounds, accumulator, widths))


def _totals(bounds: _Bounds, accumulator: Accumulator, widths: tuple[int, ...]) -> Compute:
    """Return the function that computes sums of frames as differences of running sums over all rows."""
    result = result_of(accumulator)

    def totals(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        low, high = bounds(rows)
        summed: list[Numbers] = []
        if not isinstance(accumulator, CountRows):
            (value,) = values
            present = value.is_not_null().cast(pl.Int64)
            fields = [present] if isinstance(accumulator, CountValues) else [_physical(value), present]
            for field, width in zip(fields, widths, strict=False):
                for part in split(field, width):
                    up_to = np.concatenate(([0], np.cumsum(part.to_numpy())))
                    summed.append(up_to[high] - up_to[low])
        return result(high - low, summed)

    return totals


def _physical(value: pl.Series) -> pl.Series:
    """Return the integers that represent values physically, 0 for a null."""
    whole = value.to_physical()
    return whole.fill_null(0) if whole.null_count() else whole


def _running(bounds: _Bounds, *, least: bool) -> Compute:
    """Return a function of the extremes of frames that start with the partition's first row."""

    def extremes(rows: Partitions, values: Sequence[pl.Series]) -> pl.Series:
        (value,) = values
        low, high = bounds(rows)
        # Numbers from 1 in the order of the values; 0 is no value. Those of a later partition are greater.
        ranks = value.rank("dense", descending=least).fill_null(0).cast(pl.Int64).to_numpy()
        best = np.maximum.accumulate(ranks + rows.first * (len(ranks) + 1))
        at = np.maximum(high - 1, 0)
        of = best[at] - rows.first * (len(ranks) + 1) if len(at) else at
        shown = np.zeros(len(ranks) + 1, np.int64)
        shown[ranks] = np.arange(len(ranks))
        there = (high > low) & (of > 0)
        return values_at(value, shown[np.where(there, of, 0)], there)

    return extremes


_Bounds: TypeAlias = Callable[[Partitions], tuple[Numbers, Numbers]]
"""Function that returns from where to where each row's frame is."""


def _bounds(frame: WindowFrame | None) -> _Bounds:
    assert frame is not None
    if frame.measures_values:
        raise NotLowered("a frame by distances stays in rows")
    start: Any = frame.start
    end: Any = frame.end

    def by_rows(rows: Partitions) -> tuple[Numbers, Numbers]:
        most = len(rows.first) + 1
        low, high = rows.first, rows.end
        if start is not None:
            low = np.clip(rows.at + max(-most, min(most, start)), rows.first, rows.end)
        if end is not None:
            high = np.clip(rows.at + max(-most, min(most, end + 1)), rows.first, rows.end)
        return low, np.maximum(low, high)

    def by_peers(rows: Partitions) -> tuple[Numbers, Numbers]:
        return (
            rows.first if start is None else rows.first_peer,
            rows.end if end is None else rows.end_peer,
        )

    return by_rows if frame.unit is FrameUnit.ROWS else by_peers


_BEFORE, _NEW = WEIGHT, "n"


@register_arranged(OverAggregate)
@dataclass(frozen=True)
class OverPlan(ArrangedPlan):
    """Plan for window functions over frames. answers: of the functions. schema: of the output."""

    node: int
    rows: RowsInOrder
    answers: tuple[PartitionAnswer, ...]
    schema: Schema

    @classmethod
    def of(cls, context: ColumnarContext) -> OverPlan:
        node, operator, (schema,) = context.node, context.node.operator, context.schemas
        assert isinstance(operator, OverAggregate)
        if context.append:
            raise NotLowered("it answers once")
        if not operator.per:
            raise NotLowered("one partition of all rows is kept up to date in rows")
        rows = rows_in_order(operator.per, operator.by, schema, append=context.appends[0])
        answers = tuple(answer_of(over.function, over.frame, schema) for _, over in operator.functions)
        plan = cls(node.id, rows, answers, node.schema)
        empty = empty_stream(schema, True)
        for answer in answers:
            for expr in answer.exprs:
                empty.lower(expr)
        assert plan.answer_types
        return plan

    @property
    def slot(self) -> str:
        return f"{self.node}.partitions"

    @cached_property
    def answer_types(self) -> list[pl.DataType]:
        return [dtype_of(field.type) for field in self.schema.fields[len(self.rows.schema.fields) :]]

    def write_reader(self, node: Node, writer: StepWriter, name: str) -> None:
        rule, code = OverStep(node, writer).partition_rule(), writer.code
        with code.block(f"def {name}(copies):"):
            code.line("partition = [[], [], {}]")
            code.line(f"{rule}.update(partition, copies)")
            code.line("return partition")

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        assert read is not None
        return {self.slot: RowsForm.of(self.rows, read, _copies)}

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarOver(self, state)


def _copies(partition: Any) -> Mapping[Any, int]:
    copies = Counter[Any](partition[ROWS])
    copies.update(partition[NEGATIVE])
    return copies


@dataclass(slots=True)
class ColumnarOver:
    """Window functions in large ticks."""

    plan: OverPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the changes of rows whose answers change, retractions first."""
        plan, schema = self.plan, self.plan.rows.schema
        given = plan.rows.given(inputs[0])
        self.slots.prepare(plan.slot, given)
        rows = self._touched(given)
        before, after = rows[_BEFORE].to_numpy(), rows[_NEW].to_numpy()
        before, after = np.maximum(before, 0), np.maximum(before + after, 0)
        copies = np.maximum(before, after)
        number = np.zeros(len(copies), np.int64)
        alone = bool((copies == 1).all())
        if not alone:
            # Each copy is a row of its own.
            places = np.repeat(np.arange(len(copies)), copies)
            rows, before, after = take(rows, places), before[places], after[places]
            number = np.arange(len(places)) - np.repeat(np.cumsum(copies) - copies, copies)
        was, is_now = number < before, number < after
        values = self._values(rows)
        part, peer = self._numbered(rows)
        old, new = (self._answers(np.flatnonzero(there), part, peer, values) for there in (was, is_now))
        both = np.flatnonzero(was & is_now)
        in_old, in_new = (np.cumsum(there) - 1 for there in (was, is_now))
        stays = np.zeros(len(was), np.bool_)
        unlike = differing(take(old, in_old[both]).get_columns(), take(new, in_new[both]).get_columns())
        stays[both] = ~unlike
        goes, comes = np.flatnonzero(was & ~stays), np.flatnonzero(is_now & ~stays)
        own = [str(at) for at in range(len(schema.fields))]
        parts = [
            take(select(rows, own), at).hstack([*take(answers, places[at]), constant_weights(sign, len(at))])
            for at, answers, places, sign in ((goes, old, in_old, -1), (comes, new, in_new, 1))
        ]
        made = build_stream(Columns(plan.schema, False, concat_frames(parts)))
        return made if alone else replace(sum_weights(made), whole=None)

    def _touched(self, given: pl.DataFrame) -> pl.DataFrame:
        """Return all rows of the partitions with new rows, in order, with their old and new copies."""
        spine, layout = self.slots.spine(self.plan.slot), self.plan.rows.layout
        keys = select(given, layout.keys).unique(maintain_order=True).get_columns()
        held = spine.probe(keys).rows
        zeros = [pl.Series(np.zeros(each.height, np.int64)) for each in (held, given)]
        both = concat_frames(
            [
                held.hstack([zeros[0].alias(_NEW)]),
                given.hstack([given[WEIGHT].alias(_NEW)]).with_columns(zeros[1].alias(_BEFORE)),
            ]
        )
        types = {**layout.types, _NEW: pl.Int64()}
        return batch_of(replace(layout, types=types, sums=(_BEFORE, _NEW)), both).frame

    def _values(self, rows: pl.DataFrame) -> list[tuple[pl.Series, ...]]:
        """Evaluate the arguments of each function. Raises `ColumnarDeclined`."""
        schema = self.plan.rows.schema
        exprs = [expr for answer in self.plan.answers for expr in answer.exprs]
        if not exprs:
            return [()] * len(self.plan.answers)
        own = select(rows, [str(at) for at in range(len(schema.fields))])
        stream = build_stream(Columns(schema, True, own))
        lowered = [stream.lower(expr) for expr in exprs]
        noted = stream.noting(*(one.fails for one in lowered))
        named = {f"v{at}": one.value for at, one in enumerate(lowered)}
        made = noted.frame.with_columns(**named).collect()
        if noted.checked:
            decline_marked(made)
        columns = iter([made[name] for name in named])
        return [tuple(next(columns) for _ in answer.exprs) for answer in self.plan.answers]

    def _numbered(self, rows: pl.DataFrame) -> tuple[Any, Any]:
        """Return, for each row, the number of its partition, and of its group of peers."""
        starts = np.ones(rows.height, np.bool_)
        peers = np.ones(rows.height, np.bool_)
        if rows.height:
            starts[1:] = _unlike_next(select(rows, self.plan.rows.layout.keys))
            peers[1:] = starts[1:]
            if self.plan.rows.by:
                peers[1:] |= _unlike_next(select(rows, self.plan.rows.by_names))
        return np.cumsum(starts), np.cumsum(peers)

    def _answers(
        self, places: Any, part: Any, peer: Any, values: Sequence[tuple[pl.Series, ...]]
    ) -> pl.DataFrame:
        """Return the answers to rows at `places`, as if there were no others. Raises `ColumnarDeclined`."""
        partitions = Partitions(*spans(part[places]), *spans(peer[places]))
        at = pl.Series(places.astype(np.uint32))
        columns: list[pl.Series] = []
        first = len(self.plan.rows.schema.fields)
        for number, (answer, of, dtype) in enumerate(
            zip(self.plan.answers, values, self.plan.answer_types, strict=True), first
        ):
            made = answer.compute(partitions, [column.gather(at) for column in of])
            columns.append((made.cast(dtype) if made.dtype != dtype else made).alias(str(number)))
        return pl.DataFrame(columns)


def _unlike_next(rows: pl.DataFrame) -> Any:
    """Return for each row but the last whether it differs from the next one."""
    last = rows.height - 1
    return differing(rows.slice(0, last).get_columns(), rows.slice(1, last).get_columns())
