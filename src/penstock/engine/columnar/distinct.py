"""Distinct in large ticks, over an arrangement of the rows with their copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from penstock.arrangement.batch import Layout, select, take
from penstock.engine.columnar.arranged_slot import ArrangedSlots, CountForm
from penstock.engine.columnar.column_types import NotLowered, dtype_of
from penstock.engine.columnar.columns import FAILS, WEIGHT, Columns
from penstock.engine.columnar.pre_reduction import DistinctRows
from penstock.engine.columnar.stream import Stream, build_stream, decline_marked, with_one_zero
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.unique import Unique

if TYPE_CHECKING:
    from penstock.expr.types import Schema
    from penstock.graph.node import Node


@dataclass(frozen=True)
class DistinctPlan:
    """Plan for a distinct over frames. append: of the input."""

    node: int
    schema: Schema
    append: bool
    output_append: bool

    @property
    def slot(self) -> str:
        return f"{self.node}.copies"

    @cached_property
    def layout(self) -> Layout:
        types = {str(at): dtype_of(f.type) for at, f in enumerate(self.schema.fields)}
        nullable = any(f.nullable for f in self.schema.fields)
        return Layout({**types, WEIGHT: pl.Int64()}, tuple(types), (WEIGHT,), nullable)


def plan_distinct(node: Node, appends: bool, append: bool) -> DistinctPlan:
    """Plan a distinct on frames. appends: of the input. append: of the output. Raises `NotLowered`."""
    operator = node.operator
    assert isinstance(operator, Distinct | Unique)
    if operator.lifetime is Lifetime.TICK:
        raise NotLowered("it answers each tick for itself")
    plan = DistinctPlan(node.id, node.schema, appends, append)
    if not plan.layout.keys:
        raise NotLowered("rows without columns stay in rows")
    return plan


@dataclass(slots=True)
class ColumnarDistinct:
    """Distinct in large ticks, over an arrangement that small ticks read as a slot."""

    plan: DistinctPlan
    slots: ArrangedSlots

    def answer(self, inputs: Sequence[Stream]) -> Stream:
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


def copies_form(plan: DistinctPlan) -> CountForm:
    """Return the form of a distinct's slot: row -> its copies, or 1 where rows are never retracted."""
    types = tuple(f.type for f in plan.schema.fields)
    return CountForm(plan.layout, types, plan.append and len(types) == 1, ())
