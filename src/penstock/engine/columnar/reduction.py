"""What a large tick comes to before an operator with state sees it: groups, or rows without their copies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import polars as pl

from penstock.engine.columnar.columns import FAILS, WEIGHT, Columns
from penstock.engine.columnar.expressions import reads_columns
from penstock.engine.columnar.lowered import Lowered, NotLowered, one_zero
from penstock.engine.columnar.partials import Partial, partial_of
from penstock.engine.columnar.stream import Stream, refuse_marked, summed
from penstock.engine.columnar.values import from_series
from penstock.engine.steps.accumulator import accumulator_for
from penstock.expr.check import check
from penstock.expr.tree import Expr
from penstock.expr.types import FLOAT64, INT64, DataType, Schema
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.distinct import Distinct
from penstock.graph.node import Operator

Rows = list[tuple[Any, ...]]

_HEIGHT = "rows"


class Reduction:
    """Base: fewer rows that do to an operator's state what all of a tick would."""

    def lazily(self, stream: Stream) -> pl.LazyFrame:
        """The reduced rows. Raises `NotLowered`."""
        raise NotImplementedError

    def rows(self, stream: Stream) -> Rows:
        """The reduced rows, as the operator's step reads them. Raises `Declined`."""
        raise NotImplementedError


@singledispatch
def reduction_of(operator: Operator, schema: Schema, append: bool) -> Reduction:
    """How the input of an operator, rows of `schema`, is reduced. Raises `NotLowered`."""
    raise NotLowered


@dataclass(frozen=True)
class Copies(Reduction):
    """Each row once; on a table with the sum of its weights."""

    def lazily(self, stream: Stream) -> pl.LazyFrame:
        if not stream.append:
            return summed(stream).frame
        own = [str(at) for at in range(len(stream.schema.fields))]
        marks = [pl.col(FAILS).any()] * stream.checked
        return stream.frame.group_by(own, maintain_order=True).agg(*marks)

    def rows(self, stream: Stream) -> Rows:
        frame = self.lazily(stream).collect()
        if stream.checked:
            refuse_marked(frame)
        return Columns(stream.schema, stream.append, frame).rows()


@reduction_of.register(Distinct)
def _distinct(operator: Distinct, schema: Schema, append: bool) -> Reduction:
    if operator.lifetime is Lifetime.TICK:
        raise NotLowered("it answers each tick for itself")
    return Copies()


@dataclass(frozen=True)
class Groups(Reduction):
    """Per group one row: the key, the number of rows, the partial values of the accumulators."""

    keys: tuple[Expr, ...]
    key_types: tuple[DataType, ...]
    parts: tuple[tuple[Expr | None, Partial], ...]

    @property
    def types(self) -> tuple[DataType, ...]:
        """The types of the reduced row."""
        return (*self.key_types, INT64, *(t for _, partial in self.parts for t in partial.types))

    def lazily(self, stream: Stream) -> pl.LazyFrame:
        keys = [stream.lower(expr) for expr in self.keys]
        arguments = [None if expr is None else stream.lower(expr) for expr, _ in self.parts]
        noted = stream.noting(*(one.fails for one in (*keys, *arguments) if one is not None))
        weight = None if stream.append else pl.col(WEIGHT)
        values = [pl.len().cast(pl.Int64) if weight is None else weight.sum()]
        for argument, (_, partial) in zip(arguments, self.parts, strict=True):
            values += partial.values(argument, weight, stream.most)
        named = [value.alias(f"v{at}") for at, value in enumerate(values)]
        named += [pl.col(FAILS).any()] * noted.checked
        if not keys:
            return noted.frame.select(*named, pl.len().alias(_HEIGHT))
        by = [
            _key(one, t).alias(f"k{at}") for at, (one, t) in enumerate(zip(keys, self.key_types, strict=True))
        ]
        return noted.frame.group_by(*by, maintain_order=True).agg(*named)

    def rows(self, stream: Stream) -> Rows:
        frame = self.lazily(stream).collect()
        if FAILS in frame.columns:
            refuse_marked(frame)
        if _HEIGHT in frame.columns and not frame[_HEIGHT][0]:
            # A group that no row reaches is not touched.
            return []
        taken = [from_series(t, frame.to_series(at)) for at, t in enumerate(self.types)]
        return list(zip(*taken, strict=True))


def _key(lowered: Lowered, type: DataType) -> pl.Expr:
    return one_zero(lowered.value) if type == FLOAT64 else lowered.value


@reduction_of.register(Aggregate)
def _aggregate(operator: Aggregate, schema: Schema, append: bool) -> Reduction:
    if operator.lifetime is Lifetime.TICK:
        raise NotLowered("it answers each tick for itself")
    parts: list[tuple[Expr | None, Partial]] = []
    for _, aggregation in operator.aggregations:
        partial = partial_of(accumulator_for(aggregation, schema, append))
        if partial is None:
            raise NotLowered(f"{aggregation} needs every value of a group")
        argument = next(iter(aggregation.arguments()), None)
        if argument is not None and not reads_columns(argument):
            raise NotLowered("the aggregate of a constant stays in rows")
        parts.append((argument, partial))
    keys = tuple(expr for _, expr in operator.keys)
    if not all(map(reads_columns, keys)):
        raise NotLowered("a constant key stays in rows")
    return Groups(keys, tuple(check(expr, schema).type for expr in keys), tuple(parts))
