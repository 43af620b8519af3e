"""Left, semi and anti joins in large ticks, over the arrangements of both sides.

They depend on whether a left row has matches. With L before a tick of new rows l, r, and R' after it, the
answer changes by what l meets in R', and by the rows of L whose matches begin or end with r.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.arrangement.batch import Batch, Layout, batch_of, distinct_keys, negated, select, stacked, take
from headrace.arrangement.spine import Found, Probe, together
from headrace.columns.column_stream import (
    ColumnStream,
    build_stream,
    copies_in,
    decline_marked,
    each_copy,
)
from headrace.columns.columns import FAILS, WEIGHT, ColumnarDeclined, Columns
from headrace.engine.columnar.arranged_slot import ArrangedSlots
from headrace.engine.columnar.join import JoinSideForm, side_form
from headrace.engine.columnar.slot_form import CountForm, SlotForm, Values
from headrace.operators.join.operator import SIDES, How

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.arrangement.batch import Numbers
    from headrace.engine.columnar.join_plan import JoinPlan

    Matches = Callable[[Any, Mapping[Any, int]], int]
    """Function from a left row and the right rows of its key to the number of those it matches."""


@dataclass(frozen=True)
class MatchedForm(JoinSideForm):
    """Form of the left slot: key -> {row: [copies, matches]}.

    right: returns the right rows of a key. matches: counts those that match a row.
    """

    right: Callable[[Any], Any]
    matches: Matches

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        rows = super().entry(key, found)
        if rows is None:
            return None
        others: Mapping[Any, int] = self.right(key) or {}
        return {row: [copies, self.matches(row, others)] for row, copies in rows.items()}

    def rows_of(self, entry: Any) -> Iterable[tuple[Values, int]]:
        return ((row, copies) for row, (copies, _) in entry.items())


def counts_matches(plan: JoinPlan) -> bool:
    """Return whether the slots of a join have each left row's matches, and not only numbers by key."""
    return plan.operator.how is How.LEFT or plan.operator.residual is not None


def matched_forms(plan: JoinPlan, right: Callable[[Any], Any], matches: Matches) -> dict[str, SlotForm]:
    """Return the forms of a join's slots by name. right, matches: as in `MatchedForm`."""
    left, other = (f"{plan.node}.{side}" for side in SIDES)
    rows = side_form(plan, 0, append=False)
    if not counts_matches(plan):
        keys = plan.key_types(1)
        return {left: rows, other: CountForm(plan.counts_layout(1), keys, len(keys) == 1, ())}
    form = MatchedForm(rows.layout, rows.keys, rows.bare, rows.read, plan, 0, False, right, matches)
    return {left: form, other: side_form(plan, 1, append=False)}


@dataclass(slots=True)
class ColumnarMatchedJoin:
    """Left, semi or anti join in large ticks. slots: of the sides, in order."""

    plan: JoinPlan
    slots: ArrangedSlots

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the output caused by new rows on either side. Raises `ColumnarDeclined`."""
        plan = self.plan
        unkeyed, lefts = self._left_rows(inputs[0])
        rights = plan.add_keys(1, inputs[1]).collected()
        left, right = map(self.slots.spine, self.slots.forms)
        one, other = self.slots.forms
        new_left = self.slots.prepare(one, lefts)
        new = self.slots.prepare(other, select(rights, right.layout.types))
        parts = [] if unkeyed is None else [self._alone(unkeyed)]
        first = not left.batches
        if rights.height and not first:
            # Left rows that go in the same tick are passed over.
            held = (*left.batches, new_left)
            parts += self._crossings(left.layout, held, right.layout, right.batches, new)
        if lefts.height:
            found = self._found(lefts, right.layout, (*right.batches, new) if first else right.batches)
            parts += self._pairs(lefts, found)
            matched = self._counts(lefts, found) > 0
            parts.append(self._alone(take(lefts, np.flatnonzero(matched == (plan.operator.how is How.SEMI)))))
        return self._output([part for part in parts if part.height])

    def _left_rows(self, stream: ColumnStream) -> tuple[pl.DataFrame | None, pl.DataFrame]:
        """Return the left rows without a key, if any is to be answered, and those with one."""
        plan = self.plan
        nullable = plan.nullable_keys(0)
        if plan.operator.how is How.SEMI or not nullable:
            return None, plan.add_keys(0, stream).collected()
        rows = plan.add_keys(0, stream, nulls=True).collected()
        null = np.zeros(rows.height, np.bool_)
        for name in nullable:
            null |= rows[name].is_null().to_numpy()
        return take(rows, np.flatnonzero(null)), take(rows, np.flatnonzero(~null))

    def _crossings(
        self, left: Layout, lefts: Sequence[Batch], right: Layout, rights: Sequence[Batch], new: Batch
    ) -> list[pl.DataFrame]:
        """Return what new right rows change for the left rows that are there."""
        probe = Probe.of(left, distinct_keys(right, new.frame), self.slots.most)
        rows = batch_of(left, together(left, [probe.find(batch) for batch in lefts]).rows).frame
        if not rows.height:
            return []
        changed = self._found(rows, right, [new])
        change = self._counts(rows, changed)
        before = self._counts(rows, self._found(rows, right, rights))
        gained, lost = (before <= 0) & (before + change > 0), (before > 0) & (before + change <= 0)
        arrives, goes = (gained, lost) if self.plan.operator.how is How.SEMI else (lost, gained)
        going = take(rows, np.flatnonzero(goes))
        return [
            *self._pairs(rows, changed),
            self._alone(take(rows, np.flatnonzero(arrives))),
            self._alone(negated(left, going)),
        ]

    def _found(self, asking: pl.DataFrame, layout: Layout, batches: Sequence[Batch]) -> Found:
        """Return the right rows that left rows match, in the order of these."""
        probe = Probe.of(layout, [asking[name] for name in self.plan.key_names(0)], self.slots.most)
        found = together(layout, [probe.find(batch) for batch in batches])
        if self.plan.operator.residual is not None and len(found.asked):
            passing = self._passing(take(asking, found.asked), found.rows)
            found = Found(found.asked[passing], take(found.rows, passing))
        return found

    def _passing(self, lefts: pl.DataFrame, rights: pl.DataFrame) -> Numbers:
        """Return the places of the pairs that the residual holds for. Raises `ColumnarDeclined`."""
        plan, residual = self.plan, self.plan.operator.residual
        assert residual is not None
        pairs = build_stream(Columns(plan.pairs, True, plan.columns_of_pairs(lefts, rights)))
        lowered = pairs.lower(residual)
        noted = pairs.noting(lowered.fails)
        marks = [pl.col(FAILS)] if noted.checked else []
        made = noted.frame.select(lowered.value.fill_null(False).alias("passes"), *marks).collect()
        if noted.checked:
            decline_marked(made)
        return np.flatnonzero(made["passes"].to_numpy())

    def _counts(self, asking: pl.DataFrame, found: Found) -> Numbers:
        counts = np.zeros(asking.height, np.int64)
        np.add.at(counts, found.asked, found.rows[WEIGHT].to_numpy())
        return counts

    def _pairs(self, lefts: pl.DataFrame, found: Found) -> list[pl.DataFrame]:
        """Return the pairs of left rows with what they match, of a left join."""
        plan = self.plan
        if plan.operator.how is not How.LEFT or not len(found.asked):
            return []
        own = take(lefts, found.asked)
        columns = plan.columns_of_pairs(own, found.rows)
        named = [columns[str(at)].alias(str(to)) for to, at in enumerate(plan.taken)]
        bounds = [float(np.abs(each[WEIGHT].to_numpy().astype(float)).max()) for each in (own, found.rows)]
        if bounds[0] * bounds[1] >= 2**62:
            raise ColumnarDeclined
        return [pl.DataFrame([*named, own[WEIGHT] * found.rows[WEIGHT]])]

    def _alone(self, lefts: pl.DataFrame) -> pl.DataFrame:
        """Return left rows as they are answered without a right one."""
        plan = self.plan
        columns = [lefts[str(at)] for at in range(len(plan.schemas[0].fields))]
        if plan.operator.how is How.LEFT:
            types = plan.layout(1).types
            for at in plan.operator.kept_right:
                nulls = pl.Series(str(len(columns)), [None], dtype=types[str(at)])
                columns.append(nulls.new_from_index(0, lefts.height))
        return pl.DataFrame([*columns, lefts[WEIGHT]])

    def _output(self, parts: Sequence[pl.DataFrame]) -> ColumnStream:
        plan = self.plan
        whole = stacked(parts) if parts else self._alone(pl.DataFrame(schema=plan.layout(0).types))
        if plan.append:
            copies_in(whole)  # declines what would be too many rows
            whole = each_copy(whole)
        return build_stream(Columns(plan.schema, plan.append, whole))
