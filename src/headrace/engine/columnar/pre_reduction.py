"""Reduction of a stateful operator's input in a large tick, to groups or to distinct rows.

An accumulator has the same fields however its rows arrive. In a large tick, Polars first aggregates each
group's rows; generated code then adds the few partial values to the fields, so that a small tick can follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING

import polars as pl

from headrace.arrangement.batch import Numbers
from headrace.columns.column_stream import AS_WRITTEN, ColumnStream, check_plain, decline_marked, sum_weights
from headrace.columns.columns import FAILS, WEIGHT, Columns
from headrace.engine.columnar.partial_forms import PartialForm, partial_form
from headrace.engine.partial_operators import PartialAggregate
from headrace.expr.check import check
from headrace.expr.polars_columns import (
    LoweredExpression,
    NotLowered,
    dtype_of,
    from_series,
    replace_negative_zero,
)
from headrace.expr.tree import Expr
from headrace.expr.types import INT64, DataType, Rows, Schema
from headrace.expr.typing_rules import is_float
from headrace.graph.node import Operator
from headrace.operators.aggregate.accumulator import accumulator_for
from headrace.operators.aggregate.operator import Aggregate
from headrace.operators.distinct import Distinct
from headrace.operators.lifetime import Lifetime

if TYPE_CHECKING:
    from headrace.operators.aggregate.aggregation import Aggregation


HEIGHT = "rows"
"""Name of the column with the number of rows that there are, where groups have no keys."""


class PreReduction:
    """Base of reductions: fewer rows with the same effect on an operator's state."""

    def reduce_lazily(self, stream: ColumnStream) -> pl.LazyFrame:
        """Reduce the rows lazily. Raises `NotLowered`."""
        raise NotImplementedError

    def reduce_rows(self, stream: ColumnStream) -> Rows:
        """Reduce the rows, in the form that the operator's step reads. Raises `ColumnarDeclined`."""
        raise NotImplementedError


@singledispatch
def choose_reduction(operator: Operator, schema: Schema, append: bool) -> PreReduction:
    """Choose the reduction of an operator's input with rows of `schema`. Raises `NotLowered`."""
    raise NotLowered


@dataclass(frozen=True)
class DistinctRows(PreReduction):
    """Reduction to distinct rows; on a table, with summed weights."""

    def reduce_lazily(self, stream: ColumnStream) -> pl.LazyFrame:
        if not stream.append:
            return sum_weights(stream).frame
        own = [str(at) for at in range(len(stream.schema.fields))]
        marks = [pl.col(FAILS).any()] * stream.checked
        return stream.frame.group_by(own, maintain_order=True).agg(*marks)

    def reduce_rows(self, stream: ColumnStream) -> Rows:
        frame = self.reduce_lazily(stream).collect()
        if stream.checked:
            decline_marked(frame)
        return Columns(stream.schema, stream.append, frame).rows()


@choose_reduction.register(Distinct)
def _distinct(operator: Distinct, schema: Schema, append: bool) -> PreReduction:
    if operator.lifetime is Lifetime.TICK:
        raise NotLowered("it answers each tick for itself")
    check_plain(schema)
    return DistinctRows()


@dataclass(frozen=True)
class GroupedRows(PreReduction):
    """Reduction to one row per group: key, row count, partial values of the accumulators."""

    keys: tuple[Expr, ...]
    key_types: tuple[DataType, ...]
    parts: tuple[tuple[Expr | None, PartialForm], ...]

    @property
    def types(self) -> tuple[DataType, ...]:
        """Types of the reduced row."""
        return (*self.key_types, INT64, *(t for _, partial in self.parts for t in partial.types))

    def lowered_keys(self, stream: ColumnStream) -> list[LoweredExpression]:
        """Lower what groups are told apart by. Raises `NotLowered`."""
        return [stream.lower(expr) for expr in self.keys]

    def _computed(
        self, stream: ColumnStream, *, prepared: bool
    ) -> tuple[ColumnStream, list[LoweredExpression | None]]:
        """Add the keys to rows, and what is aggregated, as "g0", ... and "a0", ... Return the latter, too.

        prepared: as by `PartialForm.prepared`.
        """
        keys = self.lowered_keys(stream)
        arguments = [None if expr is None else stream.lower(expr) for expr, _ in self.parts]
        noted = stream.noting(*(one.fails for one in (*keys, *arguments) if one is not None))
        # Computed before rows are grouped: once for all groups, and a constant for each row.
        partials = [partial for _, partial in self.parts]
        computed = {
            f"a{at}": partial.prepared(one.value) if prepared else one.value
            for at, (one, partial) in enumerate(zip(arguments, partials, strict=True))
            if one is not None
        }
        computed |= {f"g{at}": _key(*each) for at, each in enumerate(zip(keys, self.key_types, strict=True))}
        noted = replace(noted, frame=noted.frame.with_columns(**computed))
        arguments = [
            None if one is None else LoweredExpression(pl.col(f"a{at}"), one.bounds)
            for at, one in enumerate(arguments)
        ]
        return noted, arguments

    def reduce_lazily(self, stream: ColumnStream) -> pl.LazyFrame:
        noted, arguments = self._computed(stream, prepared=True)
        weight = None if stream.append else pl.col(WEIGHT)
        parts = zip(arguments, self.parts, strict=True)
        noted = noted.noting(*(partial.fails(one, weight, stream.most) for one, (_, partial) in parts))
        values = [pl.len().cast(pl.Int64) if weight is None else weight.sum()]
        for argument, (_, partial) in zip(arguments, self.parts, strict=True):
            values += partial.values(argument, weight, stream.copies)
        named = [value.alias(f"v{at}") for at, value in enumerate(values)]
        named += [pl.col(FAILS).any()] * noted.checked
        if not self.key_types:
            return noted.frame.select(*named, pl.len().alias(HEIGHT))
        return self.gathered(noted.frame, named)

    def terms(self, stream: ColumnStream) -> tuple[list[pl.Series], list[Numbers]] | None:
        """Return of each row its key, and its copies with what makes the partial values if added up.

        None where 64 bits do not hold them. Raises `ColumnarDeclined`.
        """
        noted, arguments = self._computed(stream, prepared=False)
        weight = None if stream.append else pl.col(WEIGHT)
        terms = [pl.repeat(1, pl.len(), dtype=pl.Int64()) if weight is None else weight]
        counts: list[int] = []
        for argument, (_, partial) in zip(arguments, self.parts, strict=True):
            own = partial.terms(argument, weight, stream.copies)
            if own is None:
                return None
            terms += own
            counts.append(len(own))
        keys = [pl.col(f"g{at}").alias(f"k{at}") for at in range(len(self.key_types))]
        values = [term.alias(f"v{at}") for at, term in enumerate(terms)]
        taken = noted.frame.select(*keys, *values, *[FAILS] * noted.checked)
        frame = taken.collect(optimizations=AS_WRITTEN)
        if noted.checked:
            decline_marked(frame)
        columns = frame.get_columns()
        weights = columns[len(keys)].to_numpy()
        summands, at = [weights], len(keys) + 1
        for (_, partial), count in zip(self.parts, counts, strict=True):
            summands += partial.summands(columns[at : at + count], weights)
            at += count
        return columns[: len(keys)], summands

    def gathered(self, frame: pl.LazyFrame, named: Sequence[pl.Expr]) -> pl.LazyFrame:
        """Return a row per group, first reached first. Keys are "g0", ... in the rows, and then "k0", ..."""
        by = [pl.col(f"g{at}").alias(f"k{at}") for at in range(len(self.key_types))]
        return frame.group_by(*by, maintain_order=True).agg(*named)

    def reduce_rows(self, stream: ColumnStream) -> Rows:
        frame = self.reduce_lazily(stream).collect()
        if FAILS in frame.columns:
            decline_marked(frame)
        if HEIGHT in frame.columns and not frame[HEIGHT][0]:
            # A group that no row reaches is not touched.
            return []
        taken = [from_series(t, frame.to_series(at)) for at, t in enumerate(self.types)]
        return list(zip(*taken, strict=True))


def _key(lowered: LoweredExpression, type: DataType) -> pl.Expr:
    return replace_negative_zero(lowered.value) if is_float(type) else lowered.value


@choose_reduction.register(PartialAggregate)
def _partial_aggregate(operator: PartialAggregate, schema: Schema, append: bool) -> PreReduction:
    return choose_reduction(operator.of, schema, append)


@choose_reduction.register(Aggregate)
def _aggregate(operator: Aggregate, schema: Schema, append: bool) -> PreReduction:
    if operator.lifetime is Lifetime.TICK:
        raise NotLowered("it answers each tick for itself")
    keys = tuple(expr for _, expr in operator.keys)
    types = tuple(check(expr, schema).type for expr in keys)
    for type in types:
        dtype_of(type)
    return GroupedRows(keys, types, group_parts(operator.aggregations, schema, append))


def group_parts(
    aggregations: Sequence[tuple[str, Aggregation]], schema: Schema, append: bool
) -> tuple[tuple[Expr | None, PartialForm], ...]:
    """Return the partial forms of aggregates with what they are of. Raises `NotLowered`."""
    parts: list[tuple[Expr | None, PartialForm]] = []
    for _, aggregation in aggregations:
        partial = partial_form(accumulator_for(aggregation, schema, append))
        if partial is None:
            raise NotLowered(f"{aggregation} needs every value of a group")
        parts.append((next(iter(aggregation.arguments()), None), partial))
    return tuple(parts)
