"""Aggregates in large ticks, over an arrangement of groups.

A group is its key with sums: the number of its rows, then what its accumulators hold. A tick adds the sums of
its own rows per group; from those before and after it come the old and the new answers. Values that a group
holds besides are further rows of the arrangement (`held_values`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from headrace.arrangement.batch import (
    Batch,
    Layout,
    Numbers,
    Order,
    batch_of,
    differing,
    grouped,
    joined,
    negated,
    select,
    stacked,
    take,
    values_at,
)
from headrace.arrangement.codes import is_exact
from headrace.arrangement.first_rows import change_of_first_rows, first_rows
from headrace.arrangement.spine import Found, Spine
from headrace.columns.column_stream import FEW, ColumnStream, build_stream, decline_marked, empty_stream
from headrace.columns.columns import FAILS, WEIGHT, ColumnarDeclined, Columns
from headrace.engine.columnar.arranged_slot import ArrangedSlots
from headrace.engine.columnar.float_sums import WINDOW, are_in_one_window
from headrace.engine.columnar.held_values import (
    CODE,
    COPIES,
    PART,
    HeldValues,
    filled,
    held_values,
    of_copies,
    of_part,
)
from headrace.engine.columnar.partial_forms import PartialForm, partial_form
from headrace.engine.columnar.pre_reduction import GroupedRows
from headrace.engine.columnar.slot_form import names_of_keys, one_key
from headrace.engine.columnar.sum_columns import (
    result_of,
    sum_widths,
    sums_of,
)
from headrace.expr.check import check
from headrace.expr.polars_columns import NotLowered, dtype_of, repeated
from headrace.operators.aggregate.accumulator import Accumulator, accumulator_for
from headrace.operators.aggregate.extremes import AppendExtreme
from headrace.operators.aggregate.float_totals import FLOAT_PARTS
from headrace.operators.aggregate.operator import Aggregate
from headrace.operators.aggregate.sums import FloatTotals
from headrace.operators.lifetime import Lifetime

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import Node


@dataclass(frozen=True)
class AggregatePlan:
    """Plan for an aggregate over frames.

    groups: reduction of a tick's rows to groups, by the accumulators that hold sums alone.
    kept: the accumulators, in order; of those that hold more than sums, the values.
    schema: of the output.
    alike: for the place of an accumulator that of an earlier one that holds the same sums.
    """

    node: int
    groups: GroupedRows
    kept: tuple[Accumulator | HeldValues, ...]
    schema: Schema
    alike: Mapping[int, int] = field(default_factory=dict["int", "int"])

    @property
    def slot(self) -> str:
        return f"{self.node}.groups"

    @cached_property
    def held(self) -> tuple[HeldValues, ...]:
        """Return the values that groups hold besides sums."""
        return tuple(each for each in self.kept if isinstance(each, HeldValues))

    @cached_property
    def spans(self) -> tuple[slice, ...]:
        """Return where the sums of each accumulator are; those over distinct values come last."""
        found: dict[int, slice] = {}
        at = 1
        for of_held in (False, True):
            for number, each in enumerate(self.kept):
                if number not in self.alike and isinstance(each, HeldValues) == of_held:
                    widths = each.widths if isinstance(each, HeldValues) else sum_widths(each) or ()
                    found[number] = slice(at, at + sum(widths))
                    at += sum(widths)
        return tuple(found[self.alike.get(number, number)] for number in range(len(self.kept)))

    @cached_property
    def sum_names(self) -> tuple[tuple[str, ...], ...]:
        """Return the names of the sums of each field, in their order."""
        own = [each for number, each in enumerate(self.kept) if number not in self.alike]
        plain = [each for each in own if not isinstance(each, HeldValues)]
        widths = [
            *chain.from_iterable(sum_widths(each) or () for each in plain),
            *chain.from_iterable(held.widths for held in self.held),
        ]
        return tuple(tuple(f"s{at}.{part}" for part in range(width)) for at, width in enumerate(widths))

    @cached_property
    def float_spans(self) -> tuple[slice, ...]:
        """Return where the sums of floats are, which may lie in several windows (`float_sums`)."""
        own = zip(self.kept, self.spans, strict=True)
        return tuple(span for each, span in own if isinstance(summing(each), FloatTotals))

    @property
    def has_windows(self) -> bool:
        """Return whether sums may lie in several windows."""
        return bool(self.float_spans)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        return names_of_keys(len(self.groups.key_types))

    @cached_property
    def layout(self) -> Layout:
        types = self.groups.key_types
        keys = dict(zip(self.key_names, map(dtype_of, types), strict=True)) if types else {}
        columns: dict[str, pl.DataType] = keys or {self.key_names[0]: pl.Int64()}
        names, order = self.key_names, list[Order]()
        if self.held:
            columns[PART] = pl.Int8()
            names = (*names, PART)
        if any(held.inner is not None for held in self.held):
            columns[CODE] = pl.Int64()
            order.append(Order(CODE, False))
        if self.has_windows:
            columns[WINDOW] = pl.Int8()
            order.append(Order(WINDOW, False))
        for held in self.held:
            for name, type in zip(held.columns, held.types, strict=True):
                if name != CODE:
                    columns[name] = dtype_of(type)
                    order.append(Order(name, held.descending))
        sums = (COPIES, *(name for parts in self.sum_names for name in parts))
        columns |= dict.fromkeys(sums, pl.Int64())
        wide = tuple(parts for parts in self.sum_names if len(parts) > 1)
        return Layout(columns, names, sums, self._nullable, tuple(order), wide)

    @property
    def _nullable(self) -> bool:
        return any(f.nullable for f in self.schema.fields[: len(self.groups.key_types)])

    def deltas(self, stream: ColumnStream) -> pl.DataFrame:
        """Return keys and sums of a tick's rows, per group that they reach; no sums over distinct values.

        Raises `ColumnarDeclined`.
        """
        frame = self._reduce_few(stream) if stream.most < FEW else None
        if frame is None:
            frame = self.groups.reduce_lazily(stream).collect()
            if FAILS in frame.columns:
                decline_marked(frame)
            if not self.groups.keys:
                # A group that no row reaches is not touched.
                frame = frame.head(min(1, int(frame.to_series(-1)[0])))
        count = len(self.groups.keys)
        columns = [frame[name] for name in self.key_names] if count else [one_key(frame.height)]
        columns.append(frame.to_series(count))
        at = count + 1
        for _, partial in self.groups.parts:
            values = [frame.to_series(at + n) for n in range(len(partial.types))]
            columns += sums_of(partial.accumulator, values)
            at += len(values)
        names = (*self.key_names, *self.layout.sums)
        made = [c.alias(name) for c, name in zip(columns, names, strict=False)]
        if self.has_windows:
            made.append(repeated(0, pl.Int8(), frame.height).alias(WINDOW))
        return pl.DataFrame(made)

    def _reduce_few(self, stream: ColumnStream) -> pl.DataFrame | None:
        """Aggregate few rows with NumPy, faster than a query is planned. None if 64 bits are too few."""
        found = self.groups.terms(stream)
        if found is None or not len(found[1][0]):
            return None
        own, summands = found
        keys = own or [one_key(len(summands[0]))]
        types = [key.dtype for key in keys]
        made = grouped(
            keys,
            summands,
            exact=is_exact(types, nullable=any(key.null_count() for key in keys)),
        )
        if made is None:
            return None
        firsts, sums = made
        groups = take(pl.DataFrame(own), firsts).get_columns() if own else []
        return pl.DataFrame([*groups, *(pl.Series(f"v{at}", each) for at, each in enumerate(sums))])

    def answers(
        self, keys: Sequence[pl.Series], sums: Sequence[Numbers], values: Mapping[int, pl.Series]
    ) -> list[pl.Series]:
        """Return the columns of the groups' answers. values: of extremes, by part.

        Raises `ColumnarDeclined`.
        """
        made = list(keys[: len(self.groups.keys)])
        for each, span in zip(self.kept, self.spans, strict=True):
            accumulator = summing(each)
            if accumulator is not None:
                made.append(result_of(accumulator)(sums[0], sums[span]))
            elif isinstance(each, HeldValues):
                made.append(values[each.part])
        types = [dtype_of(field.type) for field in self.schema.fields]
        return [
            column.cast(type) if column.dtype != type else column
            for column, type in zip(made, types, strict=True)
        ]


def summing(kept: Accumulator | HeldValues) -> Accumulator | None:
    """Return the accumulator that holds sums; None for extremes."""
    if isinstance(kept, HeldValues):
        return None if kept.inner is None else kept.inner.accumulator
    return kept


def plan_aggregate(node: Node, schema: Schema, appends: bool, append: bool) -> AggregatePlan:
    """Plan an aggregate on frames. schema, appends: of the input; append: of the output.

    Raises `NotLowered`.
    """
    operator = node.operator
    assert isinstance(operator, Aggregate)
    if append:
        raise NotLowered("it answers once")
    if operator.lifetime is Lifetime.TICK:
        raise NotLowered("it answers each tick for itself")
    kept: list[Accumulator | HeldValues] = []
    parts: dict[int, tuple[Expr | None, PartialForm]] = {}
    alike: dict[int, int] = {}
    for number, (_, aggregation) in enumerate(operator.aggregations):
        accumulator = accumulator_for(aggregation, schema, appends)
        partial = partial_form(accumulator)
        if sum_widths(accumulator) is not None and partial is not None:
            kept.append(accumulator)
            own = next(iter(aggregation.arguments()), None), partial
            same = next((at for at, part in parts.items() if _sum_up_alike(part, own)), None)
            if same is None:
                parts[number] = own
            else:
                alike[number] = same
            continue
        part = 1 + sum(isinstance(each, HeldValues) for each in kept)
        held = held_values(aggregation, schema, appends, part)
        if held is None:
            raise NotLowered(f"{aggregation} needs every value of a group")
        kept.append(held)
    keys = tuple(expr for _, expr in operator.keys)
    groups = GroupedRows(keys, tuple(check(expr, schema).type for expr in keys), tuple(parts.values()))
    plan = AggregatePlan(node.id, groups, tuple(kept), node.schema, alike)
    empty = empty_stream(schema, appends)
    plan.groups.reduce_lazily(empty)
    plan.layout.exact  # noqa: B018  # raises where a type has no column
    for held in plan.held:
        held.changes(empty, keys)
    return plan


def _sum_up_alike(one: tuple[Expr | None, PartialForm], other: tuple[Expr | None, PartialForm]) -> bool:
    """Return whether two partial forms sum up the same of the same expression."""
    (expr, partial), (of, form) = one, other
    widths = {sum_widths(each.accumulator) for each in (partial, form)}
    return (
        expr is not None
        and of is not None
        and expr.same(of)
        and type(partial) is type(form)
        and len(widths) == 1
    )


Extremes: TypeAlias = Mapping[int, pl.Series]
"""Extremes of some groups, by part."""

_MORE = 3
"""Values beyond the first that are looked at, for those that are taken back."""


class State(NamedTuple):
    """Sums of some groups, and their extremes."""

    sums: list[Numbers]
    values: Extremes


@dataclass(slots=True)
class ColumnarAggregate:
    """Aggregate in large ticks, over an arrangement that small ticks read as a slot."""

    plan: AggregatePlan
    slots: ArrangedSlots

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return how the answers of the groups change, in the order in which rows first reached them."""
        plan = self.plan
        stream = inputs[0].kept() if plan.held else inputs[0]
        deltas = plan.deltas(stream)
        keys = [deltas[name] for name in plan.key_names]
        spine = self.slots.spine(plan.slot)
        if plan.held:
            deltas, values = self._held_changes(stream, deltas)
            news = filled(plan.layout, {c.name: c for c in deltas}, deltas.height)
            new = self.slots.prepare(plan.slot, stacked([news, *values]))
        else:
            new = self.slots.prepare(plan.slot, deltas)
        probed = [*keys, of_part(0, deltas.height)] if plan.held else keys
        sums = self._sums(spine, probed)
        after = [old + deltas[name].to_numpy() for old, name in zip(sums, plan.layout.sums, strict=True)]
        if not all(are_in_one_window(after[span][:FLOAT_PARTS]) for span in plan.float_spans):
            raise ColumnarDeclined
        before, now = self._extremes(spine.batches, new, keys)
        frame = _changes(plan, keys, State(sums, before), State(after, now))
        return build_stream(Columns(plan.schema, False, frame))

    def _sums(self, spine: Spine, keys: Sequence[pl.Series]) -> list[Numbers]:
        """Return the sums of groups. Raises `ColumnarDeclined` where some lie in several windows."""
        found = spine.probe(keys)
        if self.plan.has_windows and bool((found.rows[WINDOW].to_numpy() != 0).any()):
            raise ColumnarDeclined
        return spine.sums_of(found, len(keys[0]))

    def _held_changes(
        self, stream: ColumnStream, deltas: pl.DataFrame
    ) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """Return the deltas with the sums over distinct values, and the rows of values to add."""
        plan, spine = self.plan, self.slots.spine(self.plan.slot)
        deltas = deltas.hstack([of_part(0, deltas.height).alias(PART)])
        added: list[pl.DataFrame] = []
        at = len(plan.sum_names) - sum(len(held.widths) for held in plan.held)
        for held in plan.held:
            rows = held.rows(plan.layout, held.changes(stream, plan.groups.keys))
            if isinstance(held.accumulator, AppendExtreme):
                rows = self._better(held, rows)
            added.append(rows)
            if held.inner is not None:
                sums = held.inner_sums(plan.key_names, rows, held.gone_or_come(spine, rows))
                found = joined(deltas.select(plan.key_names), sums, plan.key_names, "left")
                values = [column.fill_null(0) for column in found.drop(plan.key_names)]
                names = [name for parts in plan.sum_names[at : at + len(held.widths)] for name in parts]
                parts = zip(sums_of(held.inner.accumulator, values), names, strict=True)
                deltas = deltas.hstack([part.alias(name) for part, name in parts])
                at += len(held.widths)
        return deltas, added

    def _better(self, held: HeldValues, rows: pl.DataFrame) -> pl.DataFrame:
        """Return how the first values of groups change, where only these are kept."""
        layout = self.plan.layout
        keys = layout.keys_of(rows)
        before = self.slots.spine(self.plan.slot).probe(keys).rows
        both = [batch for batch in (batch_of(layout, before), batch_of(layout, rows)) if len(batch)]
        after = first_rows(layout, both, keys, 1, more=1).rows
        after.replace_column(after.get_column_index(COPIES), of_copies(1, after.height))
        return stacked([negated(layout, before), after])

    def _extremes(
        self, batches: Sequence[Batch], new: Batch, keys: Sequence[pl.Series]
    ) -> tuple[Extremes, Extremes]:
        """Return the extremes of groups, by part, before a new batch and after it."""
        plan = self.plan
        extremes = [held for held in plan.held if held.inner is None]
        if not extremes:
            return {}, {}
        count, parts = len(keys[0]), [held.part for held in extremes]
        asked = [pl.concat([key] * len(parts)) for key in keys]
        asked.append(pl.concat([of_part(part, count) for part in parts]))
        before, after = change_of_first_rows(plan.layout, batches, new, asked, 1, more=_MORE)
        return _by_part(extremes, before, count), _by_part(extremes, after, count)


def _by_part(extremes: Sequence[HeldValues], found: Found, count: int) -> Extremes:
    """Return for each part the values that were found for so many groups, nulls where none was."""
    values: dict[int, pl.Series] = {}
    for at, held in enumerate(extremes):
        own = np.flatnonzero((found.asked >= at * count) & (found.asked < (at + 1) * count))
        column = select(found.rows, held.columns[-1:])
        if len(own) == count:
            values[held.part] = take(column, own).to_series()
            continue
        places = np.full(count, -1)
        places[found.asked[own] - at * count] = own
        values[held.part] = values_at(column.to_series(), places, places >= 0)
    return values


def _changes(plan: AggregatePlan, keys: Sequence[pl.Series], before: State, after: State) -> pl.DataFrame:
    """Return what is taken back and what is given: each old answer right before the new one of its group."""
    count = len(keys[0])
    rows = np.concatenate((before.sums[0], after.sums[0]))
    at = np.flatnonzero(rows > 0)
    sums = [np.concatenate(each) for each in zip(before.sums, after.sums, strict=True)]
    values = {part: pl.concat([column, after.values[part]]) for part, column in before.values.items()}
    groups = pl.DataFrame(list(keys))
    if len(at) < 2 * count:
        groups, sums = take(groups, at % count), [column[at] for column in sums]
        places = pl.Series(at.astype(np.uint32))
        values = {part: column.gather(places) for part, column in values.items()}
    else:
        groups = stacked([groups, groups])
    answers = plan.answers(groups.get_columns(), sums, values)
    answers.append(pl.Series(np.where(at < count, -1, 1)))
    names = [*map(str, range(len(answers) - 1)), WEIGHT]
    changes = pl.DataFrame([column.alias(name) for column, name in zip(answers, names, strict=True)])
    # Of a group: where its old answer stands, and its new one.
    old = int(np.searchsorted(at, count))
    _, in_old, in_new = np.intersect1d(at[:old], at[old:] - count, assume_unique=True, return_indices=True)
    same = np.zeros(len(at), np.bool_)
    if len(in_old):
        ones, others = (take(changes, places).get_columns()[:-1] for places in (in_old, old + in_new))
        alike = ~differing(ones, others)
        same[in_old[alike]] = same[old + in_new[alike]] = True
    kept = np.flatnonzero(~same)
    order = np.argsort(2 * (at[kept] % count) + (at[kept] >= count), kind="stable")
    return take(changes, kept[order])
