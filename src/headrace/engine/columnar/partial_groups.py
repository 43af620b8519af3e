"""Partial aggregates in columns: groups of a chunk of a tick, and their merge into an arrangement.

Only for accumulators that hold sums alone. With any other one, the chunk is reduced in columns, but its
groups leave it as rows, and the merged ones are kept in rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Self

import polars as pl

from headrace.arrangement.batch import Numbers
from headrace.columns.column_stream import ColumnStream, empty_stream
from headrace.columns.columns import FAILS
from headrace.columns.expressions import columns_without_bounds
from headrace.engine.columnar.aggregate import AggregatePlan, write_group_reader
from headrace.engine.columnar.group_columns import GroupColumns
from headrace.engine.columnar.partial_forms import ROOM, PartialForm
from headrace.engine.columnar.pre_reduction import HEIGHT, GroupedRows, choose_reduction, group_parts
from headrace.engine.columnar.sum_columns import sum_widths
from headrace.engine.partial_operators import MergedAggregate, PartialAggregate, merged_group_writer
from headrace.expr.check import check
from headrace.expr.polars_columns import NotLowered, dtype_of
from headrace.lowering.forms import ColumnarSite, apply_operator, register_arranged

if TYPE_CHECKING:
    from headrace.expr.tree import Expr
    from headrace.expr.types import Schema
    from headrace.graph.node import Node
    from headrace.lowering.step_writer import StepWriter
    from headrace.operators.aggregate.accumulator import Accumulator


def _accumulators(parts: Sequence[tuple[Expr | None, PartialForm]]) -> tuple[Accumulator, ...]:
    """Return the accumulators. Raises `NotLowered` if one holds more than sums."""
    found = tuple(partial.accumulator for _, partial in parts)
    if any(sum_widths(each) is None for each in found):
        raise NotLowered("partial groups that hold more than sums stay in rows")
    return found


@apply_operator.register(PartialAggregate)
def _partial_groups(
    operator: PartialAggregate, schema: Schema, append: bool, inputs: Sequence[ColumnStream]
) -> ColumnStream:
    (stream,) = inputs
    groups = choose_reduction(operator, stream.schema, stream.append)
    assert isinstance(groups, GroupedRows)
    _accumulators(groups.parts)
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
    return ColumnStream(schema, append, frame, known, stream.most, stream.most, checked)


@dataclass(frozen=True)
class MergedGroups(GroupedRows):
    """Reduction of partial groups to one row per group: key, row count, and the sums of partial values."""

    @cached_property
    def _rooms(self) -> list[int]:
        """Return what absolute values of each column but the keys may add up to."""
        parts = chain.from_iterable(partial.rooms for _, partial in self.parts)
        return [ROOM, *parts]

    def reduce_lazily(self, stream: ColumnStream) -> pl.LazyFrame:
        keys = [stream.lower(key).value.alias(f"k{at}") for at, key in enumerate(self.keys)]
        values: list[pl.Expr] = []
        beyond: list[pl.Expr] = []
        for at, room in enumerate(self._rooms, len(self.keys)):
            most = room // max(1, stream.most)
            values.append(pl.col(str(at)).to_physical())
            beyond.append(~values[-1].is_between(-most, most))
        noted = stream.noting(*beyond)
        sums = [value.sum().alias(f"v{at}") for at, value in enumerate(values)]
        marks = [pl.col(FAILS).any()] * noted.checked
        if not keys:
            return noted.frame.select(*sums, *marks, pl.len().alias(HEIGHT))
        return noted.frame.group_by(*keys, maintain_order=True).agg(*sums, *marks)

    def terms(self, stream: ColumnStream) -> tuple[list[pl.Series], list[Numbers]] | None:
        frame = stream.collected()
        keys = [frame[str(at)].alias(f"k{at}") for at in range(len(self.keys))]
        values = [
            column.to_physical().cast(pl.Int64, strict=False) for column in frame.get_columns()[len(keys) :]
        ]
        for value, room in zip(values, self._rooms, strict=True):
            most = min(room, ROOM) // max(1, frame.height)
            if value.null_count() or not value.is_between(-most, most).all():
                return None
        return keys, [value.to_numpy() for value in values]


@register_arranged(MergedAggregate)
class MergedPlan(AggregatePlan):
    """Plan for the merge of partial groups over frames."""

    @classmethod
    def of(cls, site: ColumnarSite) -> Self:
        operator, (schema,) = site.node.operator, site.schemas
        assert isinstance(operator, MergedAggregate)
        if site.append:
            raise NotLowered("it answers once")
        parts = group_parts(operator.of.aggregations, operator.rows, operator.appends)
        keys = tuple(expr for _, expr in operator.keys)
        reduction = MergedGroups(keys, tuple(check(expr, schema).type for expr in keys), parts)
        groups = GroupColumns(reduction, _accumulators(parts), site.node.schema)
        reduction.reduce_lazily(empty_stream(schema, True))
        groups.layout.exact  # noqa: B018  # raises where a type has no column
        return cls(site.node.id, groups)

    def write_reader(self, node: Node, writer: StepWriter, name: str) -> None:
        operator = node.operator
        assert isinstance(operator, MergedAggregate)
        write_group_reader(writer, name, len(operator.keys), merged_group_writer(operator, writer))
