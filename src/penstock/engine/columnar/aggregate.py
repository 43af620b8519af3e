"""Aggregates in large ticks, over an arrangement of groups.

A group is its key with sums: the number of its rows, then what its accumulators hold. A tick adds the sums of
its own rows per group; from those before and after it come the old and the new answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from penstock.arrangement.batch import Layout, differing, take
from penstock.engine.columnar.arranged_slot import (
    ArrangedSlots,
    SlotForm,
    keys_with_sums,
    names_of_keys,
    one_key,
)
from penstock.engine.columnar.column_types import NotLowered, dtype_of
from penstock.engine.columnar.columns import FAILS, WEIGHT
from penstock.engine.columnar.pre_reduction import GroupedRows, choose_reduction
from penstock.engine.columnar.stream import Stream, decline_marked, empty_stream, stream_for
from penstock.engine.columnar.sum_columns import (
    Numbers,
    parts_of,
    result_of,
    split,
    sum_widths,
    value_of,
)
from penstock.engine.steps.group_code import FIRST_FIELD, ROWS
from penstock.flow.operators.aggregate import Aggregate

if TYPE_CHECKING:
    from penstock.expr.types import Schema
    from penstock.graph.node import Node

Answer = Callable[[Any, list[Any]], tuple[Any, ...]]
"""Function from a group's key and list, in rows, to its answer."""


@dataclass(frozen=True)
class AggregatePlan:
    """Plan for an aggregate over frames.

    groups: reduction of a tick's rows to groups. widths: per accumulator, how many sums hold each field.
    schema: of the output.
    """

    node: int
    groups: GroupedRows
    widths: tuple[tuple[int, ...], ...]
    schema: Schema

    @property
    def slot(self) -> str:
        return f"{self.node}.groups"

    @property
    def field_widths(self) -> tuple[int, ...]:
        """Return of each field of a group how many sums hold it."""
        return tuple(width for fields in self.widths for width in fields)

    @cached_property
    def layout(self) -> Layout:
        types = self.groups.key_types
        names = names_of_keys(len(types))
        keys = dict(zip(names, map(dtype_of, types), strict=True)) if types else {names[0]: pl.Int64()}
        sums, wide = ["rows"], list[tuple[str, ...]]()
        for at, width in enumerate(self.field_widths):
            parts = tuple(f"s{at}.{part}" for part in range(width))
            sums += parts
            wide += [parts] * (width > 1)
        types = {**keys, **dict.fromkeys(sums, pl.Int64())}
        return Layout(types, names, tuple(sums), self._nullable, wide=tuple(wide))

    @property
    def _nullable(self) -> bool:
        return any(f.nullable for f in self.schema.fields[: len(self.groups.key_types)])

    def deltas(self, stream: Stream) -> pl.DataFrame:
        """Return the sums of a tick's rows, per group that they reach. Raises `ColumnarDeclined`."""
        frame = self.groups.reduce_lazily(stream).collect()
        if FAILS in frame.columns:
            decline_marked(frame)
        if not self.groups.keys:
            # A group that no row reaches is not touched.
            frame = frame.head(min(1, int(frame.to_series(-1)[0])))
        count = len(self.groups.keys)
        columns = [frame[name] for name in names_of_keys(count)] if count else [one_key(frame.height)]
        columns.append(frame.to_series(count))
        for at, width in enumerate(self.field_widths, count + 1):
            columns += split(frame.to_series(at), width)
        return pl.DataFrame([c.alias(name) for c, name in zip(columns, self.layout.types, strict=True)])

    def answers(self, keys: Sequence[pl.Series], sums: Sequence[Numbers]) -> list[pl.Series]:
        """Return the columns of the groups' answers. Raises `ColumnarDeclined`."""
        at, made = 1, list(keys[: len(self.groups.keys)])
        for (_, partial), fields in zip(self.groups.parts, self.widths, strict=True):
            width = sum(fields)
            made.append(result_of(partial.accumulator)(sums[0], sums[at : at + width]))
            at += width
        types = [dtype_of(field.type) for field in self.schema.fields]
        return [
            column.cast(type) if column.dtype != type else column
            for column, type in zip(made, types, strict=True)
        ]


def plan_aggregate(node: Node, schema: Schema, appends: bool, append: bool) -> AggregatePlan:
    """Plan an aggregate on frames. schema, appends: of the input; append: of the output.

    Raises `NotLowered`.
    """
    operator = node.operator
    assert isinstance(operator, Aggregate)
    if append:
        raise NotLowered("it answers once")
    groups = choose_reduction(operator, schema, appends)
    assert isinstance(groups, GroupedRows)
    widths: list[tuple[int, ...]] = []
    for _, partial in groups.parts:
        found = sum_widths(partial.accumulator)
        if found is None:
            raise NotLowered("it holds more than sums")
        widths.append(found)
    plan = AggregatePlan(node.id, groups, tuple(widths), node.schema)
    plan.groups.reduce_lazily(empty_stream(schema, appends))
    plan.layout.exact  # noqa: B018  # raises where a type has no column
    return plan


@dataclass(frozen=True)
class GroupForm(SlotForm):
    """Form of an aggregate's slot: key -> [rows, last answer, fields...].

    widths: of each field how many sums hold it.
    answer: what a group's list, read from its columns, last answered.
    """

    widths: tuple[int, ...]
    answer: Answer

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        sums = found[0] if len(found) == 1 else tuple(map(sum, zip(*found, strict=True)))
        group: list[Any] = [sums[0], None]
        at = 1
        for width in self.widths:
            group.append(value_of(sums[at : at + width]))
            at += width
        if not any(group):
            return None
        if group[ROWS] > 0:
            group[1] = self.answer(key, group)
        return group

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        rows = [
            (
                group[ROWS],
                *(
                    part
                    for value, width in zip(group[FIRST_FIELD:], self.widths, strict=True)
                    for part in parts_of(value, width)
                ),
            )
            for group in entries.values()
        ]
        sums = [[row[at] for row in rows] for at in range(len(self.layout.sums))]
        return keys_with_sums(self, list(entries), sums)


@dataclass(slots=True)
class ColumnarAggregate:
    """Aggregate in large ticks, over an arrangement that small ticks read as a slot."""

    plan: AggregatePlan
    slots: ArrangedSlots

    def answer(self, inputs: Sequence[Stream], *, computed_on: bool) -> Stream:
        """Return how the answers of the groups change, in the order in which rows first reached them."""
        plan = self.plan
        deltas = plan.deltas(inputs[0])
        spine = self.slots.spine(plan.slot)
        self.slots.prepare(plan.slot, deltas)
        keys = plan.layout.keys_of(deltas)
        before = spine.sums(keys)
        after = [old + deltas[name].to_numpy() for old, name in zip(before, plan.layout.sums, strict=True)]
        frame = _changes(plan, keys, before, after)
        return stream_for(plan.schema, False, frame, computed_on=computed_on)


def _changes(
    plan: AggregatePlan, keys: Sequence[pl.Series], before: Sequence[Numbers], after: Sequence[Numbers]
) -> pl.DataFrame:
    """Return what is taken back and what is given: each old answer right before the new one of its group."""
    groups = pl.DataFrame(list(keys))
    old, old_at = _present(plan, groups, before)
    new, new_at = _present(plan, groups, after)
    both, in_old, in_new = np.intersect1d(old_at, new_at, assume_unique=True, return_indices=True)
    if len(both):
        alike = ~differing(take(old, in_old).get_columns(), take(new, in_new).get_columns())
        old, old_at = _without(old, old_at, in_old[alike])
        new, new_at = _without(new, new_at, in_new[alike])
    weights = np.repeat(np.array([-1, 1], np.int64), [old.height, new.height])
    changes = pl.concat([old, new]).with_columns(pl.Series(WEIGHT, weights))
    if not old.height:
        return changes
    return take(changes, np.argsort(np.concatenate((2 * old_at, 2 * new_at + 1)), kind="stable"))


def _present(
    plan: AggregatePlan, groups: pl.DataFrame, sums: Sequence[Numbers]
) -> tuple[pl.DataFrame, Numbers]:
    """Return the answers of the groups that have rows, and which these are."""
    at = np.flatnonzero(sums[0] > 0)
    if len(at) == len(sums[0]):
        columns = plan.answers(groups.get_columns(), sums)
    else:
        columns = plan.answers(take(groups, at).get_columns(), [column[at] for column in sums])
    return pl.DataFrame([column.alias(str(number)) for number, column in enumerate(columns)]), at


def _without(frame: pl.DataFrame, at: Numbers, places: Numbers) -> tuple[pl.DataFrame, Numbers]:
    if not len(places):
        return frame, at
    kept = np.delete(np.arange(len(at)), places)
    return take(frame, kept), at[kept]


def group_form(plan: AggregatePlan, answer: Answer) -> GroupForm:
    """Return the form of an aggregate's slot."""
    types = plan.groups.key_types
    return GroupForm(plan.layout, types, len(types) == 1, (), plan.field_widths, answer)
