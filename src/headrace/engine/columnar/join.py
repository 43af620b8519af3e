"""Inner joins in large ticks, over the arrangements of both sides.

With L, R before a tick of new rows l, r the answer is  l x R  +  (L + l) x r.
Small ticks read and write the same state in rows (`ArrangedSlot`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, cast

import polars as pl

from headrace.arrangement.batch import Batch, select, sorted_codes, stacked, take
from headrace.arrangement.spine import Probe, Spine, together
from headrace.columns.column_stream import ColumnStream, build_stream, empty_stream
from headrace.columns.columns import ColumnarDeclined, Columns, rows_to_columns
from headrace.engine.columnar.arranged_slot import ArrangedSlots
from headrace.engine.columnar.join_plan import JoinPlan
from headrace.engine.columnar.slot_form import BagForm, SlotForm, Values, consolidated
from headrace.operators.join.operator import SIDES


@dataclass(frozen=True)
class JoinSideForm(BagForm):
    """Form of a join side's slot: key -> rows, a list where they are never retracted, else with weights."""

    plan: JoinPlan
    port: int
    append: bool

    @property
    def grows(self) -> bool:
        return self.append

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        if self.append:
            # Rows that are all key are there once, with the number of their copies.
            return [row[:-1] for row in found for _ in range(row[-1])] or None
        return consolidated(found) or None

    def rows_of(self, entry: Any) -> Iterable[tuple[Values, int]]:
        return cast("dict[Values, int]", entry).items() if isinstance(entry, dict) else zip(entry, repeat(1))

    def weighted(self, rows: list[Values]) -> pl.DataFrame:
        stream = build_stream(rows_to_columns(self.plan.schemas[self.port], False, rows))
        return self.plan.add_keys(self.port, stream).unmarked()


class ColumnarJoin:
    """Join in large ticks, over an arrangement of each side, which small ticks read as slots.

    slots: of the sides, in order.
    """

    def __init__(self, plan: JoinPlan, slots: ArrangedSlots) -> None:
        self.plan = plan
        self.slots = slots

    def answer(self, inputs: Sequence[ColumnStream]) -> ColumnStream:
        """Return the output caused by new rows on either side.

        Raises `ColumnarDeclined` if weights are too large to add or to multiply.
        """
        plan = self.plan
        news = [plan.add_keys(port, side).collected() for port, side in enumerate(inputs)]
        left, right = spines = list(map(self.slots.spine, self.slots.forms))
        new = [self.slots.prepare(name, rows) for name, rows in zip(self.slots.forms, news, strict=True)]
        totals = [s.bounds[0] + batch.bounds[0] for s, batch in zip(spines, new, strict=True)]
        if totals[0] * totals[1] >= 2**62:
            raise ColumnarDeclined
        pairs: list[pl.DataFrame] = []
        if len(new[0]) and right.batches:
            pairs.append(self._pairs(new[0], right.batches, spines, 0))
        if len(new[1]) and (held := [batch for batch in (*left.batches, new[0]) if len(batch)]):
            pairs.append(self._pairs(new[1], held, spines, 1))
        frame = stacked(pairs) if pairs else empty_stream(plan.pairs, plan.append).frame.collect()
        return plan.output(build_stream(Columns(plan.pairs, plan.append, frame)))

    def _pairs(
        self, asking: Batch, held: Sequence[Batch], spines: Sequence[Spine], port: int
    ) -> pl.DataFrame:
        """Pair new rows of a side with those of the other. spines: of both sides."""
        own, layout = spines[port].layout, spines[1 - port].layout
        keys = select(asking.frame, self.plan.key_names(port)).get_columns()
        if own.exact == layout.exact:
            # Rows that are sorted already are found fastest.
            probe = Probe(layout, keys, asking.codes, None, self.slots.most)
        else:
            # An index that is shared may hold keys that are null.
            probe = Probe.of(layout, keys, self.slots.most)
        found = together(self.plan.layout(1 - port), [probe.find(batch) for batch in held])
        order, asked = sorted_codes(found.asked)
        rows = take(asking.frame, asked)
        others = found.rows if order is None else take(found.rows, order)
        return self.plan.pair_rows(rows, others) if port == 0 else self.plan.pair_rows(others, rows)


def join_forms(plan: JoinPlan) -> dict[str, SlotForm]:
    """Return the forms of a join's slots by name."""
    return {
        f"{plan.node}.{side}": side_form(plan, port, append=plan.appends[port])
        for port, side in enumerate(SIDES)
    }


def side_form(plan: JoinPlan, port: int, *, append: bool) -> JoinSideForm:
    """Return the form of a side's slot. append: its entries are lists."""
    keys = plan.key_types(port)
    read = tuple((str(at), field.type) for at, field in enumerate(plan.schemas[port].fields))
    return JoinSideForm(plan.layout(port), keys, len(keys) == 1, read, plan, port, append)
