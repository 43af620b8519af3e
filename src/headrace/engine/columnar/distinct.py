"""Distinct in large ticks, over an arrangement of the rows with their copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from headrace.arrangement.batch import Layout, batch_of, bounded, select, take
from headrace.arrangement.spine import Probe
from headrace.columns.column_stream import ColumnStream, build_stream, decline_marked, with_one_zero
from headrace.columns.columns import FAILS, WEIGHT, Columns, weights_of
from headrace.engine.columnar.arranged_slot import ArrangedSlots
from headrace.engine.columnar.pre_reduction import DistinctRows
from headrace.engine.columnar.slot_form import CountForm
from headrace.expr.polars_columns import NotLowered, dtype_of
from headrace.operators.distinct import Distinct, Unique
from headrace.operators.feedback import Feedback
from headrace.operators.lifetime import Lifetime

if TYPE_CHECKING:
    from headrace.expr.types import Schema
    from headrace.graph.node import Node


@dataclass(frozen=True)
class DistinctPlan:
    """Plan for a distinct over frames. append: of the input. closes: it is the feedback of a loop."""

    node: int
    schema: Schema
    append: bool
    output_append: bool
    closes: bool = False

    @property
    def slot(self) -> str:
        return f"{self.node}.{'rows' if self.closes else 'copies'}"

    @cached_property
    def layout(self) -> Layout:
        types = {str(at): dtype_of(f.type) for at, f in enumerate(self.schema.fields)}
        nullable = any(f.nullable for f in self.schema.fields)
        return Layout({**types, WEIGHT: pl.Int64()}, tuple(types), (WEIGHT,), nullable)


def plan_distinct(node: Node, appends: bool, append: bool) -> DistinctPlan:
    """Plan a distinct, or the feedback of a loop, on frames. Raises `NotLowered`.

    appends: of the input. append: of the output.
    """
    operator = node.operator
    assert isinstance(operator, Distinct | Unique | Feedback)
    closes = isinstance(operator, Feedback)
    if not closes and operator.lifetime is Lifetime.TICK:
        raise NotLowered("it answers each tick for itself")
    plan = DistinctPlan(node.id, node.schema, appends, append, closes)
    if not plan.layout.keys:
        raise NotLowered("rows without columns stay in rows")
    return plan


@dataclass(slots=True)
class ColumnarDistinct:
    """Distinct in large ticks, over an arrangement that small ticks read as a slot."""

    plan: DistinctPlan
    slots: ArrangedSlots

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


@dataclass(slots=True)
class ColumnarFeedback:
    """Feedback of sets in a loop on frames: the rows that were never there, in no particular order."""

    plan: DistinctPlan
    slots: ArrangedSlots

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


def copies_form(plan: DistinctPlan) -> CountForm:
    """Return the form of a distinct's slot: row -> its copies, or 1 where rows are never retracted."""
    types = tuple(f.type for f in plan.schema.fields)
    return CountForm(plan.layout, types, plan.append and len(types) == 1 and not plan.closes, ())
