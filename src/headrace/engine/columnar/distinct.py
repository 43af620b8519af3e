"""Distinct in large ticks, over an arrangement of the rows with their copies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import polars as pl

from headrace.arrangement.batch import Layout, batch_of, bounded, select, take
from headrace.arrangement.spine import Probe
from headrace.columns.column_stream import ColumnStream, build_stream, decline_marked, with_one_zero
from headrace.columns.columns import FAILS, WEIGHT, Columns, weights_of
from headrace.columns.slot_forms import CountForm
from headrace.engine.columnar.pre_reduction import DistinctRows
from headrace.expr.polars_columns import NotLowered, dtype_of
from headrace.lowering.forms import ArrangedPlan, ArrangedState, ColumnarSite, register_arranged
from headrace.operators.distinct import Distinct, Unique
from headrace.operators.feedback import Feedback
from headrace.operators.lifetime import Lifetime

if TYPE_CHECKING:
    from headrace.columns.slot_forms import SlotForm
    from headrace.expr.types import Schema
    from headrace.lowering.forms import ArrangedOperator
    from headrace.lowering.slot import SlotMapping


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
    def of(cls, site: ColumnarSite) -> Self:
        operator = site.node.operator
        if isinstance(operator, Distinct | Unique) and operator.lifetime is Lifetime.TICK:
            raise NotLowered("it answers each tick for itself")
        plan = cls(site.node.id, site.node.schema, site.appends[0], site.append)
        if not plan.layout.keys:
            raise NotLowered("rows without columns stay in rows")
        return plan

    @property
    def slot(self) -> str:
        return f"{self.node}.copies"

    @property
    def bare(self) -> bool:
        """Return whether rows of one column are keys by their value."""
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
        """Return the rows that begin or cease to be there, in the order in which they were first reached."""
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


@register_arranged(Feedback)
@dataclass(frozen=True)
class FeedbackPlan(DistinctPlan):
    """Plan for the feedback of sets in a loop on frames. Outside of loops, a delay keeps its rows."""

    runs_outside_loops = False

    @property
    def slot(self) -> str:
        return f"{self.node}.rows"

    @property
    def bare(self) -> bool:
        return False

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarFeedback(self, state)


@dataclass(slots=True)
class ColumnarFeedback:
    """Feedback of sets in a loop on frames: the rows that were never there, in no particular order."""

    plan: FeedbackPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the new ones among the rows of a round, each once."""
        layout, slot = self.plan.layout, self.plan.slot
        rows = with_one_zero(inputs[0]).collected()
        found = batch_of(layout, rows.hstack([weights_of(1, rows.height)]))
        probe = Probe(layout, layout.keys_of(found.frame), found.codes, None)
        known = np.zeros(len(found), np.bool_)
        for batch in self.slots.spine(slot).batches:
            known[probe.find(batch).asked] = True
        at = np.flatnonzero(~known)
        made = select(take(found.frame, at), layout.keys)
        weighted = made.hstack([weights_of(1, len(at))])
        self.slots.prepare_batch(slot, bounded(layout, found.codes[at], weighted))
        return build_stream(Columns(self.plan.schema, True, made))
