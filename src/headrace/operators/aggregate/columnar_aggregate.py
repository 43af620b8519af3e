"""Aggregates in large ticks, over an arrangement of groups.

A group is its key with sums: the number of its rows, then what its accumulators hold. A tick adds the sums of
its own rows per group; from those before and after it come the old and the new answers. Values that a group
holds besides are further rows of the arrangement (`held_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from headrace.arrangement.batch import (
    Numbers,
    Places,
    SortedBatch,
    batch_of,
    concat_frames,
    differing,
    distinct_keys,
    joined,
    negated,
    select,
    take,
    values_at,
)
from headrace.arrangement.reading import change_of_first_rows, first_rows
from headrace.arrangement.spine import FoundRows, Probe, Spine, together
from headrace.columns.column_stream import ColumnStream, build_stream, empty_stream
from headrace.columns.columns import WEIGHT, ColumnarDeclined, Columns
from headrace.expr.check import check
from headrace.expr.polars_columns import NotLowered
from headrace.lowering.forms import (
    ArrangedPlan,
    ArrangedState,
    ColumnarContext,
    PreReduction,
    reduced_step_for,
    register_arranged,
)
from headrace.lowering.row_code import key_columns, tuple_source
from headrace.operators.aggregate.aggregate import Aggregate, AggregateStep, group_keys, group_writer
from headrace.operators.aggregate.aggregation import Accumulator, accumulator_for
from headrace.operators.aggregate.exact_totals import FLOAT_PARTS
from headrace.operators.aggregate.extremes import AppendExtreme
from headrace.operators.aggregate.group_columns import GroupColumns, group_form
from headrace.operators.aggregate.held_values import (
    CODE,
    COPIES,
    PART,
    HeldValues,
    filled,
    held_values,
    of_copies,
    of_part,
)
from headrace.operators.aggregate.partial_forms import GroupedRows, PartialForm, merge_parts, partial_form
from headrace.operators.aggregate.sketches import CodeCounts
from headrace.operators.aggregate.sum_columns import WINDOW, are_in_one_window, sum_widths, sums_of
from headrace.operators.lifetime import Lifetime
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from headrace.columns.slot_forms import SlotForm
    from headrace.expr.tree import Expr
    from headrace.graph.node import Node
    from headrace.lowering.forms import ArrangedOperator
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step import RowStep
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.aggregate.aggregation import Group


@register_arranged(Aggregate)
@dataclass(frozen=True)
class AggregatePlan(ArrangedPlan):
    """Plan for an aggregate over frames."""

    node: int
    groups: GroupColumns

    @classmethod
    def of(cls, context: ColumnarContext) -> Self:
        operator, schema, appends = context.node.operator, context.schemas[0], context.appends[0]
        assert isinstance(operator, Aggregate)
        if context.append:
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
        reduction = GroupedRows(keys, tuple(check(expr, schema).type for expr in keys), tuple(parts.values()))
        groups = GroupColumns(reduction, tuple(kept), context.node.schema, alike)
        empty = empty_stream(schema, appends)
        reduction.reduce_lazily(empty)
        groups.layout.exact  # noqa: B018  # raises where a type has no column
        for held in groups.held:
            held.changes(empty, keys)
        return cls(context.node.id, groups)

    @property
    def slot(self) -> str:
        return f"{self.node}.groups"

    def write_reader(self, node: Node, writer: StepWriter, name: str) -> None:
        operator = node.operator
        assert isinstance(operator, Aggregate)
        write_group_reader(writer, name, len(operator.keys), group_writer(operator, node, writer))

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        assert read is not None
        return {self.slot: group_form(self.groups, read)}

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarAggregate(self.slot, self.groups, state)


def write_group_reader(writer: StepWriter, name: str, keys: int, group: Group) -> None:
    """Write the function from a group's key and list to its answer."""
    columns = (*key_columns("key", keys), *group.aggregate_sources("group"))
    with writer.code.block(f"def {name}(key, group):"):
        writer.code.line(f"return {tuple_source(columns)}")


def _sum_up_alike(one: tuple[Expr | None, PartialForm], other: tuple[Expr | None, PartialForm]) -> bool:
    """Return whether two partial forms compute the same sums of the same expression."""
    (expr, partial), (of, form) = one, other
    widths = {sum_widths(each.accumulator) for each in (partial, form)}
    return (
        expr is not None
        and of is not None
        and expr.same(of)
        and type(partial) is type(form)
        and len(widths) == 1
    )


PartAnswers: TypeAlias = "dict[int, pl.Series]"
"""Extremes of some groups, and answers of sketches, by part."""

_MORE = 3
"""Values beyond the first that are looked at, for those that are taken back."""


class GroupState(NamedTuple):
    """Sums of some groups, and the answers of their parts."""

    sums: list[Numbers]
    values: PartAnswers


@dataclass(slots=True)
class ColumnarAggregate:
    """Aggregate in large ticks, over an arrangement that small ticks read as a slot."""

    slot: str
    groups: GroupColumns
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the changes of the groups' answers, in the order in which rows first reached the groups."""
        groups = self.groups
        stream = inputs[0].kept() if groups.held else inputs[0]
        deltas = groups.deltas(stream)
        keys = [deltas[name] for name in groups.key_names]
        spine = self.slots.spine(self.slot)
        if groups.held:
            deltas, values = self._held_changes(stream, deltas)
            news = filled(groups.layout, {c.name: c for c in deltas}, deltas.height)
            new = self.slots.prepare(self.slot, concat_frames([news, *values]))
        else:
            new = self.slots.prepare(self.slot, deltas)
        probed = [*keys, of_part(0, deltas.height)] if groups.held else keys
        sums = self._sums(spine, probed)
        after = [old + deltas[name].to_numpy() for old, name in zip(sums, groups.layout.sums, strict=True)]
        if not all(are_in_one_window(after[span][:FLOAT_PARTS]) for span in groups.float_spans):
            raise ColumnarDeclined
        before, now = self._extremes(spine.batches, new, keys)
        for held in groups.held:
            if isinstance(held.accumulator, CodeCounts):
                both = _estimates(held, held.accumulator, spine, new, keys)
                before[held.part], now[held.part] = both
        frame = _changes(groups, keys, GroupState(sums, before), GroupState(after, now))
        return build_stream(Columns(groups.schema, False, frame))

    def _sums(self, spine: Spine, keys: Sequence[pl.Series]) -> list[Numbers]:
        """Return the sums of groups. Raises `ColumnarDeclined` if one spans several windows."""
        found = spine.probe(keys)
        if self.groups.has_windows and bool((found.rows[WINDOW].to_numpy() != 0).any()):
            raise ColumnarDeclined
        return spine.sums_of(found, len(keys[0]))

    def _held_changes(
        self, stream: ColumnStream, deltas: pl.DataFrame
    ) -> tuple[pl.DataFrame, list[pl.DataFrame]]:
        """Return the deltas with sums over distinct values added, and the changes of the held values."""
        groups, spine = self.groups, self.slots.spine(self.slot)
        deltas = deltas.hstack([of_part(0, deltas.height).alias(PART)])
        added: list[pl.DataFrame] = []
        at = len(groups.sum_names) - sum(len(held.widths) for held in groups.held)
        for held in groups.held:
            rows = held.rows(groups.layout, held.changes(stream, groups.reduction.keys))
            if isinstance(held.accumulator, AppendExtreme):
                rows = self._better(held, rows)
            elif isinstance(held.accumulator, CodeCounts) and held.accumulator.append:
                rows = self._pruned(held.accumulator, rows)
            added.append(rows)
            if held.inner is not None:
                sums = held.inner_sums(groups.key_names, rows, held.gone_or_come(spine, rows))
                found = joined(deltas.select(groups.key_names), sums, groups.key_names, "left")
                values = [column.fill_null(0) for column in found.drop(groups.key_names)]
                names = [name for parts in groups.sum_names[at : at + len(held.widths)] for name in parts]
                parts = zip(sums_of(held.inner.accumulator, values), names, strict=True)
                deltas = deltas.hstack([part.alias(name) for part, name in parts])
                at += len(held.widths)
        return deltas, added

    def _better(self, held: HeldValues, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the changes of the groups' first values, if only these are kept."""
        layout = self.groups.layout
        keys = layout.keys_of(rows)
        before = self.slots.spine(self.slot).probe(keys).rows
        both = [batch for batch in (batch_of(layout, before), batch_of(layout, rows)) if len(batch)]
        after = first_rows(layout, both, keys, 1, more=1).rows
        after.replace_column(after.get_column_index(COPIES), of_copies(1, after.height))
        return concat_frames([negated(layout, before), after])

    def _pruned(self, sketch: CodeCounts, rows: pl.DataFrame) -> pl.DataFrame:
        """Return the changes of a sketch's codes, without those that it no longer needs."""
        layout, spine = self.groups.layout, self.slots.spine(self.slot)
        probe = Probe.of(layout, distinct_keys(layout, rows))
        batches = (*spine.batches, batch_of(layout, rows))
        found = _present_codes(together(layout, [probe.find(batch) for batch in batches]))
        needed = sketch.needed(found.asked, found.rows[CODE].to_numpy())
        if needed is None or needed.all():
            return rows
        return concat_frames([rows, negated(layout, take(found.rows, np.flatnonzero(~needed)))])

    def _extremes(
        self, batches: Sequence[SortedBatch], new: SortedBatch, keys: Sequence[pl.Series]
    ) -> tuple[PartAnswers, PartAnswers]:
        """Return the extremes of groups, by part, before a new batch and after it."""
        groups = self.groups
        extremes = [held for held in groups.held if not held.has_codes]
        if not extremes:
            return {}, {}
        count, parts = len(keys[0]), [held.part for held in extremes]
        asked = [pl.concat([key] * len(parts)) for key in keys]
        asked.append(pl.concat([of_part(part, count) for part in parts]))
        before, after = change_of_first_rows(groups.layout, batches, new, asked, 1, more=_MORE)
        return _by_part(extremes, before, count), _by_part(extremes, after, count)


def _estimates(
    held: HeldValues,
    sketch: CodeCounts,
    spine: Spine,
    new: SortedBatch,
    keys: Sequence[pl.Series],
) -> tuple[pl.Series, pl.Series]:
    """Return the answers of a sketch for groups, before a new batch and after it."""
    count, layout = len(keys[0]), spine.layout
    probe = Probe.of(layout, [*keys, of_part(held.part, count)])
    old = together(layout, [probe.find(batch) for batch in spine.batches])
    found = together(layout, [old, probe.find(new)])
    there = _SortedCodes.of(found)
    copies = found.rows[COPIES].to_numpy()
    now = there.sums(copies) > 0
    was = there.sums(np.where(np.arange(len(copies)) < len(old.asked), copies, 0)) > 0
    before = sketch.answers(there.groups[was], there.codes[was], count)
    # Most groups have most codes already.
    changed = np.unique(there.groups[was != now])
    if not len(changed):
        return before, before
    own = now & np.isin(there.groups, changed)
    places = np.searchsorted(changed, there.groups[own])
    after = before.clone().scatter(changed, sketch.answers(places, there.codes[own], len(changed)))
    return before, after


@dataclass(frozen=True, slots=True)
class _SortedCodes:
    """Codes of groups, each once, in order.

    order: the rows in that order. firsts: where in it the rows of each code begin.
    """

    order: Places
    firsts: Places
    groups: Numbers
    codes: Numbers

    @classmethod
    def of(cls, found: FoundRows) -> _SortedCodes:
        # A code has at most 32 bits. Rows of a batch are nearly in order, of which a stable sort makes use.
        keys = (found.asked.astype(np.int64) << 32) | found.rows[CODE].to_numpy()
        order = np.argsort(keys, kind="stable")
        keys = keys[order]
        begins = np.ones(len(keys), np.bool_)
        begins[1:] = keys[1:] != keys[:-1]
        firsts = np.flatnonzero(begins)
        return cls(order, firsts, keys[firsts] >> 32, keys[firsts] & 0xFFFFFFFF)

    def sums(self, copies: Numbers) -> Numbers:
        """Return the sum of the copies of each code's rows."""
        return np.add.reduceat(copies[self.order], self.firsts) if len(self.firsts) else copies[:0]


def _present_codes(found: FoundRows) -> FoundRows:
    """Return a row for each code with copies of each group, in order."""
    there = _SortedCodes.of(found)
    copies = there.sums(found.rows[COPIES].to_numpy())
    kept = copies > 0
    rows = take(found.rows, there.order[there.firsts[kept]])
    rows.replace_column(rows.get_column_index(COPIES), pl.Series(COPIES, copies[kept]))
    return FoundRows(there.groups[kept], rows)


def _by_part(extremes: Sequence[HeldValues], found: FoundRows, count: int) -> PartAnswers:
    """Return, per part, the values found for `count` groups; null for groups without one."""
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


def _changes(
    columns: GroupColumns, keys: Sequence[pl.Series], before: GroupState, after: GroupState
) -> pl.DataFrame:
    """Return retractions and insertions: each group's old answer directly before its new one."""
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
        groups = concat_frames([groups, groups])
    answers = columns.answers(groups.get_columns(), sums, values)
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


# --- in rows, over groups that come from columns ----------------------------------------------------


class ReducedAggregateStep(AggregateStep):
    """Aggregate over reduced input: key, row count and partial values of each group."""

    takes_rows = False

    def __init__(self, node: Node, writer: StepWriter, operator: Aggregate, groups: GroupedRows) -> None:
        group = group_writer(operator, node, writer)
        super().__init__(node, writer, group_keys(operator), operator.lifetime, group)
        self.groups = groups

    def finish(self) -> None:
        writer, code = self.writer, self.code
        names = [writer.fresh("part") for _ in self.groups.types]
        width = len(self.groups.keys)
        keys, rows, values = names[:width], names[width], names[width + 1 :]
        slot, get = writer.slot(self.node.id, "groups"), writer.slot_get(self.node.id, "groups")
        key, group = writer.fresh("key"), writer.fresh("group")
        with code.block(f"for {', '.join(names)}, in {writer.buffer(self.node.inputs[0])}:"):
            code.line(f"{key} = {keys[0] if width == 1 else tuple_source(keys) if keys else '()'}")
            code.line(f"{group} = {get}({key})")
            with code.block(f"if {group} is None:"):
                code.line(f"{group} = {slot}[{key}] = {self.group.empty}")
            code.line(f"{self.touched}[{key}] = {group}")
            merge_parts(writer, self.groups, self.group, group, (rows, *values))
        super().finish()


@reduced_step_for.register(Aggregate)
def _reduced_step(operator: Aggregate, reduction: PreReduction, node: Node, writer: StepWriter) -> RowStep:
    assert isinstance(reduction, GroupedRows)
    return ReducedAggregateStep(node, writer, operator, reduction)
