"""Top-k in large ticks, over an arrangement of each group's rows in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.arrangement.batch import Layout, Order, select
from penstock.arrangement.first_rows import change_of_first_rows
from penstock.arrangement.spine import Found
from penstock.engine.columnar.arranged_slot import ArrangedSlots, SlotForm, names_of_keys
from penstock.engine.columnar.column_types import NotLowered, dtype_of
from penstock.engine.columnar.columns import FAILS, WEIGHT, Columns, rows_to_columns
from penstock.engine.columnar.expressions import reads_columns
from penstock.engine.columnar.lowered_expression import replace_negative_zero
from penstock.engine.columnar.stream import Stream, build_stream, each_copy, empty_stream, with_one_zero
from penstock.expr.check import check
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.top_k import TopK

if TYPE_CHECKING:
    from penstock.expr.tree import Expr, Ordering
    from penstock.expr.types import DataType, Schema
    from penstock.graph.node import Node


@dataclass(frozen=True)
class RowsInOrder:
    """Rows of `schema` by group, in an order. Where `by` holds rows equal, their columns tell."""

    per: tuple[Expr, ...]
    by: tuple[Ordering, ...]
    schema: Schema

    @property
    def keys(self) -> tuple[DataType, ...]:
        """Return the types of the groups' keys."""
        return tuple(check(expr, self.schema).type for expr in self.per)

    @property
    def by_names(self) -> tuple[str, ...]:
        """Return the columns with what rows are sorted by."""
        return tuple(f"o{at}" for at in range(len(self.by)))

    @cached_property
    def layout(self) -> Layout:
        """Layout of all rows: by group, sorted."""
        rows = {str(at): dtype_of(f.type) for at, f in enumerate(self.schema.fields)}
        per = [check(expr, self.schema) for expr in self.per]
        types = [dtype_of(of.type) for of in per] or [pl.Int64()]
        keys = dict(zip(names_of_keys(len(per)), types, strict=True))
        ordered = list(zip(self.by_names, self.by, strict=True))
        by = {name: dtype_of(check(ordering.expr, self.schema).type) for name, ordering in ordered}
        order = [
            *(Order(name, ordering.descending) for name, ordering in ordered),
            *(Order(name, False) for name in rows),
        ]
        types = {**keys, **by, **rows, WEIGHT: pl.Int64()}
        nullable = any(of.nullable for of in per)
        return Layout(types, tuple(keys), (WEIGHT,), nullable, tuple(order))

    def keyed(self, stream: Stream) -> Stream:
        """Add groups, what rows are sorted by, and missing weights."""
        named = dict(zip(names_of_keys(len(self.per)), self.per, strict=False))
        named |= {name: ordering.expr for name, ordering in zip(self.by_names, self.by, strict=True)}
        lowered = {name: stream.lower(expr) for name, expr in named.items()}
        noted = stream.noting(*(one.fails for one in lowered.values()))
        columns = [
            (replace_negative_zero(one.value) if self.layout.types[name].is_float() else one.value).alias(
                name
            )
            for name, one in lowered.items()
        ]
        if not self.per:
            columns.append(pl.lit(0, pl.Int64()).alias(names_of_keys(0)[0]))
        if stream.append:
            columns.append(pl.lit(1, pl.Int64()).alias(WEIGHT))
        return replace(noted, frame=noted.frame.with_columns(columns))

    def given(self, stream: Stream) -> pl.DataFrame:
        """Return new rows as they are kept. Raises `ColumnarDeclined`."""
        return select(self.keyed(with_one_zero(stream)).collected(), self.layout.types)

    def weighted(self, rows: list[tuple[Any, ...]]) -> pl.DataFrame:
        """Return rows in Python, with their weights, as they are kept. Raises `ColumnarDeclined`."""
        stream = build_stream(rows_to_columns(self.schema, False, rows))
        return self.keyed(stream).frame.drop(FAILS, strict=False).collect()


def rows_in_order(
    per: tuple[Expr, ...], by: tuple[Ordering, ...], schema: Schema, *, append: bool
) -> RowsInOrder:
    """Return the order of an operator's rows. append: of the input. Raises `NotLowered`."""
    if not all(map(reads_columns, (*per, *(ordering.expr for ordering in by)))):
        raise NotLowered("a constant key stays in rows")
    rows = RowsInOrder(per, by, schema)
    rows.keyed(empty_stream(schema, append))
    assert rows.layout.types
    return rows


@dataclass(frozen=True)
class TopPlan:
    """Plan for a top-k over frames. append: of the input. output_append: of the output."""

    node: int
    rows: RowsInOrder
    count: int
    append: bool
    output_append: bool

    @property
    def slot(self) -> str:
        return f"{self.node}.groups"


def plan_top(node: Node, appends: bool, append: bool) -> TopPlan:
    """Plan a top-k on frames. appends: of the input. append: of the output. Raises `NotLowered`."""
    operator = node.operator
    assert isinstance(operator, TopK)
    if operator.lifetime is Lifetime.TICK:
        raise NotLowered("it answers each tick for itself")
    rows = rows_in_order(operator.per, operator.by, node.schema, append=appends)
    return TopPlan(node.id, rows, operator.count, appends, append)


@dataclass(frozen=True)
class TopForm(SlotForm):
    """Form of a top-k's slot, whose entries are made of the copies of a group's rows.

    of_copies: makes an entry of them.
    """

    plan: TopPlan
    of_copies: Callable[[dict[tuple[Any, ...], int]], Any]

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        copies: dict[tuple[Any, ...], int] = {}
        for row in found:
            copies[row[:-1]] = copies.get(row[:-1], 0) + row[-1]
        copies = {row: count for row, count in copies.items() if count}
        return self.of_copies(copies) if copies else None

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        weighted: list[tuple[Any, ...]] = []
        for entry in entries.values():
            copies: dict[Any, int] = Counter(entry) if self.plan.append else entry[1]
            weighted += [(*row, count) for row, count in copies.items()]
        return self.plan.rows.weighted(weighted)


def top_form(plan: TopPlan, of_copies: Callable[[dict[tuple[Any, ...], int]], Any]) -> TopForm:
    """Return the form of a top-k's slot."""
    rows = plan.rows
    read = tuple((str(at), field.type) for at, field in enumerate(rows.schema.fields))
    return TopForm(rows.layout, rows.keys, len(rows.keys) == 1, read, plan, of_copies)


@dataclass(slots=True)
class ColumnarTopK:
    """Top-k in large ticks. Where rows are never retracted, only those that are answered are kept."""

    plan: TopPlan
    slots: ArrangedSlots

    def answer(self, inputs: Sequence[Stream]) -> Stream:
        """Return how the first rows of the groups change, group by group."""
        plan, layout, schema = self.plan, self.plan.rows.layout, self.plan.rows.schema
        spine = self.slots.spine(plan.slot)
        given = plan.rows.given(inputs[0])
        new = self.slots.prepare(plan.slot, given)
        keys = select(given, layout.keys).unique(maintain_order=True).get_columns()
        before, after = map(
            self._clipped,
            change_of_first_rows(layout, spine.batches, new, keys, plan.count),
        )
        changes = _differences(layout, before, after)
        if plan.append:
            self.slots.prepare(plan.slot, changes)
        rows = changes.select(*(str(at) for at in range(len(schema.fields))), WEIGHT)
        if plan.output_append:
            rows = each_copy(rows)
        return build_stream(Columns(schema, plan.output_append, rows))

    def _clipped(self, found: Found) -> pl.DataFrame:
        """Return the first rows of groups, with as many copies as are answered, and the groups' numbers."""
        count, (asked, rows) = self.plan.count, found
        copies = rows[WEIGHT].to_numpy()
        before = np.cumsum(copies) - copies
        starts = np.flatnonzero(np.diff(asked, prepend=-1))
        before -= np.repeat(before[starts], np.diff(starts, append=len(asked)))
        clipped = pl.Series(WEIGHT, np.minimum(copies, count - before))
        return rows.with_columns(clipped, pl.Series(_ASKED, asked))


_ASKED = "#"


def _differences(layout: Layout, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Return which rows go and come, group by group."""
    both = pl.concat([before.with_columns(-pl.col(WEIGHT)), after]).lazy()
    rows = [name for name in both.collect_schema().names() if name != WEIGHT]
    changed = both.group_by(rows, maintain_order=True).agg(pl.col(WEIGHT).sum()).filter(pl.col(WEIGHT) != 0)
    return changed.sort(_ASKED, maintain_order=True).select(*layout.types).collect()
