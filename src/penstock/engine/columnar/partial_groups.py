"""Partial aggregates in columns: groups of a chunk of a tick, and their merge into an arrangement.

Only for accumulators that hold sums alone. With any other one, the chunk is reduced in columns, but its
groups leave it as rows, and the merged ones are kept in rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from penstock.engine.columnar.aggregate import AggregatePlan
from penstock.engine.columnar.column_types import NotLowered, dtype_of
from penstock.engine.columnar.columns import FAILS
from penstock.engine.columnar.expressions import columns_without_bounds
from penstock.engine.columnar.pre_reduction import (
    HEIGHT,
    ROOM,
    WIDE_ROOM,
    GroupedRows,
    PartialForm,
    choose_reduction,
    group_parts,
)
from penstock.engine.columnar.stream import Stream, apply_operator, empty_stream
from penstock.engine.columnar.sum_columns import sum_widths
from penstock.engine.partial_operators import MergedAggregate, PartialAggregate
from penstock.expr.check import check
from penstock.expr.types import DecimalType

if TYPE_CHECKING:
    from penstock.expr.tree import Expr
    from penstock.expr.types import Schema
    from penstock.graph.node import Node


def _widths(parts: Sequence[tuple[Expr | None, PartialForm]]) -> tuple[tuple[int, ...], ...]:
    """Return per accumulator how many sums hold each of its fields. Raises `NotLowered`."""
    widths = [sum_widths(partial.accumulator) for _, partial in parts]
    if None in widths:
        raise NotLowered("partial groups that hold more than sums stay in rows")
    return tuple(each for each in widths if each is not None)


@apply_operator.register(PartialAggregate)
def _partial_groups(
    operator: PartialAggregate, schema: Schema, append: bool, inputs: Sequence[Stream]
) -> Stream:
    (stream,) = inputs
    groups = choose_reduction(operator, stream.schema, stream.append)
    assert isinstance(groups, GroupedRows)
    _widths(groups.parts)
    frame = groups.reduce_lazily(stream)
    if not groups.keys:
        # A group that no row reaches is not there.
        frame = frame.filter(pl.col(HEIGHT) > 0)
    names = [f"k{at}" for at in range(len(groups.keys))]
    names += [f"v{at}" for at in range(len(schema.fields) - len(names))]
    columns = [
        pl.col(name).cast(dtype_of(field.type)).alias(str(at))
        for at, (name, field) in enumerate(zip(names, schema.fields, strict=True))
    ]
    checked = FAILS in frame.collect_schema()
    frame = frame.select(*columns, *[FAILS] * checked)
    known = tuple(columns_without_bounds(schema))
    return Stream(schema, append, frame, known, stream.most, stream.most, checked)


@dataclass(frozen=True)
class MergedGroups(GroupedRows):
    """Reduction of partial groups to one row per group: key, row count, and the sums of partial values."""

    def reduce_lazily(self, stream: Stream) -> pl.LazyFrame:
        keys = [stream.lower(key).value.alias(f"k{at}") for at, key in enumerate(self.keys)]
        values: list[pl.Expr] = []
        beyond: list[pl.Expr] = []
        for at, field in list(enumerate(stream.schema.fields))[len(self.keys) :]:
            room = (WIDE_ROOM if isinstance(field.type, DecimalType) else ROOM) // max(1, stream.most)
            values.append(pl.col(str(at)).to_physical())
            beyond.append(~values[-1].is_between(-room, room))
        noted = stream.noting(*beyond)
        sums = [value.sum().alias(f"v{at}") for at, value in enumerate(values)]
        marks = [pl.col(FAILS).any()] * noted.checked
        if not keys:
            return noted.frame.select(*sums, *marks, pl.len().alias(HEIGHT))
        return noted.frame.group_by(*keys, maintain_order=True).agg(*sums, *marks)

    def terms(self, stream: Stream) -> pl.DataFrame | None:
        frame = stream.collected()
        keys = [frame[str(at)].alias(f"k{at}") for at in range(len(self.keys))]
        values = [
            column.to_physical().cast(pl.Int64, strict=False) for column in frame.get_columns()[len(keys) :]
        ]
        room = ROOM // max(1, frame.height)
        if not all(value.null_count() == 0 and value.is_between(-room, room).all() for value in values):
            return None
        return pl.DataFrame([*keys, *(value.alias(f"v{at}") for at, value in enumerate(values))])


def plan_merged(node: Node, schema: Schema, append: bool) -> AggregatePlan:
    """Plan the merge of partial groups on frames. schema: of these; append: of the output.

    Raises `NotLowered`.
    """
    operator = node.operator
    assert isinstance(operator, MergedAggregate)
    if append:
        raise NotLowered("it answers once")
    parts = group_parts(operator.of.aggregations, operator.rows, operator.appends)
    keys = tuple(expr for _, expr in operator.keys)
    groups = MergedGroups(keys, tuple(check(expr, schema).type for expr in keys), parts)
    plan = AggregatePlan(node.id, groups, _widths(parts), node.schema)
    groups.reduce_lazily(empty_stream(schema, True))
    plan.layout.exact  # noqa: B018  # raises where a type has no column
    return plan
