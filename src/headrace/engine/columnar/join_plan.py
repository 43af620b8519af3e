"""Plan of a join in large ticks: its keys, arrangements and pairs in columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from headrace.arrangement.batch import Layout
from headrace.columns.column_stream import ColumnStream, each_copy, empty_stream
from headrace.columns.columns import FAILS, WEIGHT, weights_of
from headrace.columns.expressions import reads_columns
from headrace.engine.columnar.slot_form import key_names
from headrace.expr.check import TypeAndNullability, check
from headrace.expr.polars_columns import LoweredExpression, NotLowered, dtype_of
from headrace.expr.tree import Expr
from headrace.expr.types import DataType, Schema
from headrace.expr.typing_rules import is_float
from headrace.operators.join.operator import How, Join
from headrace.operators.lifetime import Lifetime

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph, Node


@dataclass(frozen=True)
class JoinPlan:
    """Plan for a join over frames.

    schemas, appends: of the two inputs. pairs: the columns of both, under the residual's names.
    schema, append: of the output.
    """

    node: int
    operator: Join
    schemas: tuple[Schema, Schema]
    appends: tuple[bool, bool]
    pairs: Schema
    schema: Schema
    append: bool

    @property
    def keys(self) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
        return self.operator.left_keys, self.operator.right_keys

    def key_names(self, port: int) -> tuple[str, ...]:
        """Return the columns with a side's keys: of the rows, or beside them if they are computed."""
        return self._key_names[port]

    @cached_property
    def _key_names(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self._names_of(0), self._names_of(1)

    def _names_of(self, port: int) -> tuple[str, ...]:
        return key_names(self.keys[port], self.schemas[port])

    def layout(self, port: int) -> Layout:
        """Return the layout of a side's arrangement. A row without a key is not in it."""
        rows = {str(at): dtype_of(field.type) for at, field in enumerate(self.schemas[port].fields)}
        keys = self._keys_of(port)
        return Layout({**rows, **keys, WEIGHT: pl.Int64()}, tuple(keys), (WEIGHT,), nullable=False)

    def counts_layout(self, port: int) -> Layout:
        """Return the layout of the numbers of a side's rows by key."""
        keys = self._keys_of(port)
        return Layout({**keys, WEIGHT: pl.Int64()}, tuple(keys), (WEIGHT,), nullable=False)

    def _keys_of(self, port: int) -> dict[str, pl.DataType]:
        types = list(map(dtype_of, self.key_types(port))) or [pl.Int64()]
        return dict(zip(self.key_names(port), types, strict=True))

    def add_keys(self, port: int, stream: ColumnStream, *, nulls: bool = False) -> ColumnStream:
        """Add a side's computed keys and missing weights. nulls: keep rows with a null in a key."""
        whole = stream.at_hand
        if whole is not None and self.keys[port] and not any(n.startswith("k") for n in self.key_names(port)):
            nullable = () if nulls else self.nullable_keys(port)
            if not any(whole[name].null_count() for name in nullable):
                return self._weighted(stream, whole)
        lowered = [stream.lower(expr) for expr in self.keys[port]]
        noted = stream.noting(*(one.fails for one in lowered))
        names = self.key_names(port)
        computed = [
            one.value.alias(name) for name, one in zip(names, lowered, strict=False) if name.startswith("k")
        ]
        if not self.keys[port]:
            computed.append(pl.lit(0, pl.Int64()).alias(names[0]))
        if stream.append:
            computed.append(pl.lit(1, pl.Int64()).alias(WEIGHT))
        keyed = noted.frame.with_columns(computed)
        nullable = self.nullable_keys(port)
        if nullable and not nulls:
            present = pl.all_horizontal(*(pl.col(name).is_not_null() for name in nullable))
            keyed = keyed.filter(present | pl.col(FAILS) if noted.checked else present)
        return replace(noted, frame=keyed)

    @staticmethod
    def _weighted(stream: ColumnStream, whole: pl.DataFrame) -> ColumnStream:
        """Add missing weights to rows that are computed already."""
        if not stream.append:
            return stream
        ones = weights_of(1, whole.height)
        return ColumnStream.of_frame(
            stream.schema, stream.append, whole.hstack([ones]), stream.columns, stream.copies
        )

    def nullable_keys(self, port: int) -> tuple[str, ...]:
        """Return the columns of a side's keys that may be null."""
        return self._nullable_keys[port]

    @cached_property
    def _nullable_keys(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        one, other = (
            tuple(name for name, of in zip(names, checked, strict=False) if of.nullable)
            for names, checked in zip(self._key_names, self._checked, strict=True)
        )
        return one, other

    def key_types(self, port: int) -> tuple[DataType, ...]:
        """Return the types of a side's keys."""
        return tuple(of.type for of in self._checked[port])

    @cached_property
    def _checked(self) -> tuple[tuple[TypeAndNullability, ...], ...]:
        sides = zip(self.keys, self.schemas, strict=True)
        return tuple(tuple(check(expr, schema) for expr in keys) for keys, schema in sides)

    def columns_of_pairs(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Put the columns of two sides side by side."""
        width = len(self.schemas[0].fields)
        columns = [left[str(at)] for at in range(width)]
        columns += [right[str(at)].alias(str(width + at)) for at in range(len(self.schemas[1].fields))]
        return pl.DataFrame(columns)

    @cached_property
    def taken(self) -> tuple[int, ...]:
        """Places of the output's columns in a pair."""
        width = len(self.schemas[0].fields)
        return (*range(width), *(width + at for at in self.operator.kept_right))

    def pair_rows(self, left: pl.DataFrame, right: pl.DataFrame) -> pl.DataFrame:
        """Put the rows of two sides side by side, with their weights."""
        pairs = self.columns_of_pairs(left, right)
        weights = left[WEIGHT] * right[WEIGHT]
        weighted = pairs.hstack([weights])
        return each_copy(weighted) if self.append else weighted

    def output(self, pairs: ColumnStream) -> ColumnStream:
        """Convert pairs to output rows."""
        residual = self.operator.residual
        if residual is not None:
            lowered = pairs.lower(residual)
            pairs = pairs.noting(lowered.fails)
            passes = lowered.value
            if pairs.checked:
                passes = passes.fill_null(False) | pl.col(FAILS)
            pairs = replace(pairs, frame=pairs.frame.filter(passes))
        taken = pairs.taking(self.schema, self.append, self.taken)
        if taken is not None:
            return taken
        known = tuple(
            LoweredExpression(pl.col(str(to)), pairs.columns[at].bounds) for to, at in enumerate(self.taken)
        )
        columns = [pl.col(str(at)).alias(str(to)) for to, at in enumerate(self.taken)]
        beside = [*([] if self.append else [WEIGHT]), *([FAILS] if pairs.checked else [])]
        frame = pairs.frame.select(*columns, *beside)
        return ColumnStream(self.schema, self.append, frame, known, pairs.most, pairs.copies, pairs.checked)


def plan_join(graph: FlowGraph, node: Node, appends: tuple[bool, ...], append: bool) -> JoinPlan:
    """Plan a join on frames. Raises `NotLowered`."""
    operator = node.operator
    assert isinstance(operator, Join)
    if Lifetime.TICK in operator.lifetimes:
        raise NotLowered("it answers each tick for itself")
    one, other = (graph.nodes[source].schema for source in node.inputs)
    plan = JoinPlan(
        node.id,
        operator,
        (one, other),
        (appends[0], appends[1]),
        operator.pair_schema([one, other]),
        node.schema,
        append,
    )
    for port in (0, 1):
        if any(map(is_float, plan.key_types(port))):
            raise NotLowered("a join on floats works on rows")
        if not all(map(reads_columns, plan.keys[port])):
            raise NotLowered("a join on a constant works on rows")
        plan.add_keys(port, empty_stream(plan.schemas[port], appends[port]))
        # Lists are carried on, but not held.
        plan.layout(port)
    pairs = empty_stream(plan.pairs, append)
    if operator.how is How.INNER:
        plan.output(pairs)
    elif operator.residual is not None:
        pairs.lower(operator.residual)
    return plan
