"""Top-k in large ticks, over an arrangement of each group's rows in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from headrace.arrangement.batch import Layout, batch_of, distinct_keys, negated, select, stacked
from headrace.arrangement.first_rows import change_of_first_rows
from headrace.arrangement.spine import Found
from headrace.columns.column_stream import ColumnStream, build_stream, each_copy
from headrace.columns.columns import WEIGHT, Columns
from headrace.engine.columnar.rows_in_order import RowsForm, RowsInOrder, rows_in_order
from headrace.expr.polars_columns import NotLowered
from headrace.lowering.forms import ArrangedPlan, ArrangedState, ColumnarSite, register_arranged
from headrace.operators.lifetime import Lifetime
from headrace.operators.top_k import TopK, TopKStep

if TYPE_CHECKING:
    from headrace.columns.slot_forms import SlotForm
    from headrace.graph.node import Node
    from headrace.lowering.forms import ArrangedOperator
    from headrace.lowering.slot import SlotMapping
    from headrace.lowering.step_writer import StepWriter


@register_arranged(TopK)
@dataclass(frozen=True)
class TopPlan(ArrangedPlan):
    """Plan for a top-k over frames. append: of the input. output_append: of the output."""

    node: int
    rows: RowsInOrder
    count: int
    append: bool
    output_append: bool

    @classmethod
    def of(cls, site: ColumnarSite) -> TopPlan:
        node, operator = site.node, site.node.operator
        assert isinstance(operator, TopK)
        if operator.lifetime is Lifetime.TICK:
            raise NotLowered("it answers each tick for itself")
        rows = rows_in_order(operator.per, operator.by, node.schema, append=site.appends[0])
        return cls(node.id, rows, operator.count, site.appends[0], site.append)

    @property
    def slot(self) -> str:
        return f"{self.node}.groups"

    def write_reader(self, node: Node, writer: StepWriter, name: str) -> None:
        step, code = TopKStep(node, writer), writer.code
        with code.block(f"def {name}(copies):"):
            code.line(f"rows = sorted((row for row, n in copies.items() if n > 0), key={step.order})")
            if step.appends:
                code.line("return [row for row in rows for _ in range(copies[row])]")
            else:
                code.line(f"return [rows, copies, {{}}, x_first_copies(rows, copies, {step.operator.count})]")

    def slot_forms(
        self, read: Callable[..., Any] | None, slot: Callable[[str], SlotMapping]
    ) -> dict[str, SlotForm]:
        assert read is not None
        return {self.slot: RowsForm.of(self.rows, read, Counter if self.append else itemgetter(1))}

    def start(self, state: ArrangedState) -> ArrangedOperator:
        return ColumnarTopK(self, state)


@dataclass(slots=True)
class ColumnarTopK:
    """Top-k in large ticks. Where rows are never retracted, only those that are answered are kept."""

    plan: TopPlan
    slots: ArrangedState

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return how the first rows of the groups change, group by group."""
        plan, layout, schema = self.plan, self.plan.rows.layout, self.plan.rows.schema
        spine = self.slots.spine(plan.slot)
        given = plan.rows.given(inputs[0])
        new = self.slots.prepare(plan.slot, given)
        keys = distinct_keys(layout, given)
        before, after = change_of_first_rows(layout, spine.batches, new, keys, plan.count)
        if before is after:
            changes = before.rows.clear()
        else:
            changes = _differences(layout, self._clipped(before), self._clipped(after))
        if plan.append:
            self.slots.prepare(plan.slot, changes)
        rows = select(changes, [*(str(at) for at in range(len(schema.fields))), WEIGHT])
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
        columns = [clipped if name == WEIGHT else rows[name] for name in self.plan.rows.layout.types]
        return pl.DataFrame([*columns, pl.Series(_ASKED, asked)])


_ASKED = "#"


def _differences(layout: Layout, before: pl.DataFrame, after: pl.DataFrame) -> pl.DataFrame:
    """Return which rows go and come, group by group."""
    of_groups = Layout({**layout.types, _ASKED: pl.Int64()}, (_ASKED,), (WEIGHT,), nullable=False)
    changes = batch_of(of_groups, stacked([negated(of_groups, before), after]))
    return select(changes.frame, layout.types)
