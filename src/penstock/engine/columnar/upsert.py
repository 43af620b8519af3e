"""Upserts in large ticks, over an arrangement of the row of each key.

They run on columns where a key needs no more than its row and its sequence: in order of arrival, or by a
sequence of records that never delete. Of others, digests of older rows are kept, one by one. A tick in which
two records of a key have one sequence and different rows runs in rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.arrangement.batch import Layout, differing, select, stacked, take
from penstock.arrangement.spine import Found
from penstock.engine.columnar.arranged_slot import (
    ArrangedSlots,
    SlotForm,
    consolidated,
    key_columns,
    names_of_keys,
)
from penstock.engine.columnar.column_types import NotLowered, dtype_of, to_series
from penstock.engine.columnar.columns import FAILS, WEIGHT, ColumnarDeclined, Columns
from penstock.engine.columnar.expressions import reads_columns
from penstock.engine.columnar.lowered_expression import replace_negative_zero
from penstock.engine.columnar.stream import Stream, build_stream, empty_stream
from penstock.expr.check import check
from penstock.expr.tree import Call, Expr, Literal
from penstock.flow.operators.upsert import Upsert

if TYPE_CHECKING:
    from penstock.expr.types import DataType, Schema
    from penstock.graph.node import Node

SEQUENCE, PRESENT = "sequence", "present"
"""Columns with the sequence of a record, if it has one, and with whether it sets a row."""


@dataclass(frozen=True)
class UpsertPlan:
    """Plan for an upsert over frames.

    records: schema of the input. schema: of the output.
    columns: of the row that a record sets. sets: whether it sets one; None: each does.
    """

    node: int
    records: Schema
    schema: Schema
    keys: tuple[Expr, ...]
    columns: tuple[Expr, ...]
    sets: Expr | None
    sequence: Expr | None

    @property
    def slot(self) -> str:
        return f"{self.node}.rows"

    @property
    def key_types(self) -> tuple[DataType, ...]:
        return tuple(check(key, self.records).type for key in self.keys)

    @cached_property
    def read(self) -> tuple[tuple[str, DataType], ...]:
        """Columns of what is held of a key: of its row, and the sequence last."""
        own = [(str(at), field.type) for at, field in enumerate(self.schema.fields)]
        if self.sequence is not None:
            own.append((SEQUENCE, check(self.sequence, self.records).type))
        return tuple(own)

    @cached_property
    def layout(self) -> Layout:
        names = names_of_keys(len(self.keys))
        keys = dict(zip(names, map(dtype_of, self.key_types), strict=True))
        nullable = any(check(key, self.records).nullable for key in self.keys)
        rows = {name: dtype_of(type) for name, type in self.read}
        return Layout({**keys, **rows, WEIGHT: pl.Int64()}, names, (WEIGHT,), nullable)

    def computed(self, stream: Stream) -> Stream:
        """Return the records as columns: the key, the row, the sequence, and whether it is set."""
        named = dict(zip(self.layout.keys, self.keys, strict=True))
        named |= {str(at): expr for at, expr in enumerate(self.columns)}
        if self.sequence is not None:
            named[SEQUENCE] = self.sequence
        lowered = {name: stream.lower(expr) for name, expr in named.items()}
        fails = [one.fails for one in lowered.values()]
        if self.sequence is not None:
            fails.append(lowered[SEQUENCE].value.is_null())
        columns: list[pl.Expr] = []
        for name, one in lowered.items():
            floats = self.layout.types[name].is_float()
            columns.append((replace_negative_zero(one.value) if floats else one.value).alias(name))
        if self.sets is not None:
            present = stream.lower(self.sets)
            fails.append(present.fails)
            columns.append(present.value.fill_null(False).alias(PRESENT))
        noted = stream.noting(*fails)
        beside = [pl.col(FAILS)] * noted.checked
        return replace(noted, frame=noted.frame.select(*columns, *beside))


def plan_upsert(node: Node, records: Schema) -> UpsertPlan:
    """Plan an upsert of records on frames. Raises `NotLowered`."""
    operator = node.operator
    assert isinstance(operator, Upsert)
    rule = operator.rule
    if rule.before is not None or rule.place is not None or rule.table is not None:
        raise NotLowered("records of tables work on rows")
    row, sets = rule.row, None
    if isinstance(row, Call) and row.function == "when" and len(row.arguments) == 3:
        condition, made, otherwise = row.arguments
        if isinstance(otherwise, Literal) and otherwise.value is None:
            row, sets = made, condition
    if not isinstance(row, Call) or row.function != "struct":
        raise NotLowered("a row that is no struct of columns stays in rows")
    if rule.sequence is not None and (rule.image is not None or sets is not None):
        raise NotLowered("of records that delete, digests of older rows are kept")
    exprs = (*rule.keys, *row.arguments, *(e for e in (sets, rule.sequence) if e is not None))
    if not all(map(reads_columns, exprs)):
        raise NotLowered("constants stay in rows")
    plan = UpsertPlan(node.id, records, node.schema, rule.keys, row.arguments, sets, rule.sequence)
    plan.computed(empty_stream(records, True))
    empty_stream(node.schema, False)
    return plan


@dataclass(frozen=True)
class RowForm(SlotForm):
    """Form of an upsert's slot: key -> row, or (sequence, row)."""

    sequenced: bool

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        row = next(iter(consolidated(found)), None)
        return (row[-1], row[:-1]) if self.sequenced and row is not None else row

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        held = (
            [(*row, sequence) for sequence, row in entries.values()] if self.sequenced else entries.values()
        )
        try:
            columns = [
                to_series(type, [row[at] for row in held]).alias(name)
                for at, (name, type) in enumerate(self.read)
            ]
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
            raise ColumnarDeclined from error
        keys = [
            series.alias(name)
            for series, name in zip(key_columns(self, list(entries)), self.layout.keys, strict=True)
        ]
        return pl.DataFrame([*keys, *columns, pl.Series(WEIGHT, np.ones(len(entries), np.int64))])


def row_form(plan: UpsertPlan) -> RowForm:
    """Return the form of an upsert's slot."""
    types = plan.key_types
    return RowForm(plan.layout, types, len(types) == 1, plan.read, plan.sequence is not None)


@dataclass(slots=True)
class ColumnarUpsert:
    """Upsert in large ticks."""

    plan: UpsertPlan
    slots: ArrangedSlots

    def answer(self, inputs: Sequence[Stream]) -> Stream:
        """Return how the rows of the keys change, in the order in which records first reached them."""
        plan, layout = self.plan, self.plan.layout
        last = self._last(plan.computed(inputs[0]).collected())
        keys = layout.keys_of(last)
        held_of, held = _present_rows(layout, self.slots.spine(plan.slot).probe(keys))
        known = np.full(last.height, -1, np.int64)  # of each key, the place of what is held
        known[held_of] = np.arange(len(held_of))
        both = np.flatnonzero(known >= 0)
        new_rows, old_rows = take(last, both), take(held, known[both])
        own = [name for name, _ in plan.read]
        stays = ~differing(*(select(frame, own).get_columns() for frame in (new_rows, old_rows)))
        if plan.sets is not None:
            stays &= new_rows[PRESENT].to_numpy()
        if plan.sequence is not None:
            stays |= _passed_over(new_rows, old_rows, stays)
        sets = np.ones(last.height, np.bool_) if plan.sets is None else last[PRESENT].to_numpy().copy()
        sets[both[stays]] = False
        gone, come = both[~stays], np.flatnonzero(sets)
        old, new = take(held, known[gone]), take(last, come)
        delta = stacked([_weighted(layout, old, -1), _weighted(layout, new, 1)])
        self.slots.prepare(plan.slot, delta)
        changes = select(delta, [*(str(at) for at in range(len(plan.schema.fields))), WEIGHT])
        order = np.argsort(np.concatenate((2 * gone, 2 * come + 1)), kind="stable")
        if plan.sequence is not None:
            order = _shown(changes, gone, come, order)
        return build_stream(Columns(plan.schema, False, take(changes, order)))

    def _last(self, records: pl.DataFrame) -> pl.DataFrame:
        """Return the record that decides for each key, in the order in which keys were first reached.

        Raises `ColumnarDeclined` if two of them have one sequence.
        """
        keys = list(self.plan.layout.keys)
        if self.plan.sequence is None:
            return records.group_by(keys, maintain_order=True).last()
        records = records.unique(maintain_order=True)
        if records.select(*keys, SEQUENCE).is_duplicated().any():
            raise ColumnarDeclined
        others = [name for name in records.columns if name not in keys]
        latest = pl.col(SEQUENCE).arg_max()
        return records.group_by(keys, maintain_order=True).agg(pl.col(others).gather(latest).first())


def _present_rows(layout: Layout, found: Found) -> tuple[Any, pl.DataFrame]:
    """Return the rows that are held, one per key at most, and the numbers of their keys."""
    asked, rows = found
    if rows.height and (rows[WEIGHT].to_numpy() < 0).any():
        summed = rows.hstack([pl.Series("#", asked)]).lazy()
        summed = summed.group_by("#", *layout.keys, *layout.values, maintain_order=True).agg(
            pl.col(WEIGHT).sum()
        )
        rows = summed.filter(pl.col(WEIGHT) != 0).collect()
        asked = rows["#"].to_numpy()
    return asked, select(rows, layout.types)


def _passed_over(new: pl.DataFrame, old: pl.DataFrame, alike: Any) -> Any:
    """Return which records are no later than what is held.

    Raises `ColumnarDeclined` if one contradicts it.
    """
    same = (new[SEQUENCE] == old[SEQUENCE]).to_numpy()
    if (same & ~alike).any():
        raise ColumnarDeclined
    return same | (new[SEQUENCE] < old[SEQUENCE]).to_numpy()


def _shown(changes: pl.DataFrame, gone: Any, come: Any, order: Any) -> Any:
    """Return the order of the changes without those in which only the sequence differs."""
    _, in_gone, in_come = np.intersect1d(gone, come, assume_unique=True, return_indices=True)
    rows = changes.drop(WEIGHT)
    old, new = (take(rows, at).get_columns() for at in (in_gone, len(gone) + in_come))
    alike = ~differing(old, new)
    unshown = np.concatenate((in_gone[alike], len(gone) + in_come[alike]))
    return order[~np.isin(order, unshown)]


def _weighted(layout: Layout, rows: pl.DataFrame, weight: int) -> pl.DataFrame:
    """Return rows with a weight, in the columns of a layout."""
    weights = pl.Series(WEIGHT, np.full(rows.height, weight, np.int64))
    return pl.DataFrame([weights if name == WEIGHT else rows[name] for name in layout.types])
