"""Group aggregates as native columns, independent of row order.

An aggregate is two things: native aggregate functions over the group
(`measures`), and the answer made of what they measured (`answer`). Sums and
means of integers and decimals are exact and native; those of floats gather the
values of a group and are summed exactly in Python, because a native sum of
floats depends on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.errors import NotOnSpark
from penstock.expr.check import check
from penstock.expr.types import FLOAT64, INT32, DecimalType, Field
from penstock.flow.aggregates import (
    Aggregation,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    Sum,
)
from penstock.flow.operators.aggregate import Aggregate
from penstock.spark.batch.operators import Site, exact_column, lower_operator
from penstock.spark.lowering import exact_sums
from penstock.spark.lowering.signed_zero import replace_negative_zero
from penstock.spark.lowering.types import nullable_type, spark_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.expr.types import DataType


@dataclass(frozen=True, slots=True)
class NativeAggregates:
    """Native aggregates over a group, and the function that computes the answer column from them."""

    measures: tuple[Column, ...]
    answer: Callable[..., Column]


@dataclass(frozen=True, slots=True)
class AggregateArguments:
    """Columns and types of an aggregation's arguments, with the field of the answer."""

    columns: tuple[Column, ...]
    types: tuple[DataType, ...]
    out: Field


@lower_operator.register(Aggregate)
def _(operator: Aggregate, site: Site) -> DataFrame:
    fields = site.node.schema.fields
    keys = [site.column(expr).alias(f"key {at}") for at, (_, expr) in enumerate(operator.keys)]
    columns = list(keys)
    measures: list[Column] = []
    answers = [exact_column(f"key {at}").alias(name) for at, (name, _) in enumerate(operator.keys)]
    for number, (name, aggregation) in enumerate(operator.aggregations):
        types = tuple(check(expr, site.schemas[0]).type for expr in aggregation.arguments())
        given = [
            replace_negative_zero(type_, site.column(expr))
            for type_, expr in zip(types, aggregation.arguments(), strict=True)
        ]
        labels = [f"argument {number} {at}" for at in range(len(given))]
        columns += [column.alias(label) for column, label in zip(given, labels, strict=True)]
        out = fields[len(operator.keys) + number]
        measured = measure(
            aggregation, AggregateArguments(tuple(exact_column(label) for label in labels), types, out)
        )
        made = [f"measure {number} {at}" for at in range(len(measured.measures))]
        measures += [m.alias(label) for m, label in zip(measured.measures, made, strict=True)]
        answer = measured.answer(*(exact_column(label) for label in made))
        answers.append(answer.cast(nullable_type(spark_type(out.type))).alias(name))
    # Arguments become columns of their own first, so that no name of the input can be taken for one
    # of the output. A group is there while it has rows: the group of everything is no exception.
    grouped = site.inputs[0].select(*columns, f.lit(1).alias("row"))
    grouped = grouped.groupBy(*(exact_column(f"key {at}") for at in range(len(keys)))).agg(
        f.count(exact_column("row")).alias("rows"), *measures
    )
    present = grouped if keys else grouped.filter(exact_column("rows") > 0)
    return present.select(*answers)


@singledispatch
def measure(aggregation: Aggregation, to: AggregateArguments) -> NativeAggregates:
    """Build the native form of an aggregation."""
    raise NotOnSpark(f"{aggregation} has no form as a batch on Spark")


def _as_it_is(column: Column) -> Column:
    return column


@measure.register(Count)
def _(aggregation: Count, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((f.count(to.columns[0] if to.columns else exact_column("row")),), _as_it_is)


@measure.register(CountDistinct)
def _(aggregation: CountDistinct, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((f.count_distinct(to.columns[0]),), _as_it_is)


@measure.register(Min)
def _(aggregation: Min, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((f.min(to.columns[0]),), _as_it_is)


@measure.register(Max)
def _(aggregation: Max, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((f.max(to.columns[0]),), _as_it_is)


@measure.register(First)
def _(aggregation: First, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((f.min(_pair(to)),), lambda pair: pair.getField("value"))


@measure.register(Last)
def _(aggregation: Last, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((f.max(_pair(to)),), lambda pair: pair.getField("value"))


def _pair(to: AggregateArguments) -> Column:
    """Pair `by` with the value in a struct, which orders ties of `by` by value."""
    value, by = to.columns
    return f.when(by.isNotNull(), f.struct(by.alias("by"), value.alias("value")))


@measure.register(Collect)
def _(aggregation: Collect, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((f.collect_list(to.columns[0]),), f.sort_array)


@measure.register(Sum)
def _(aggregation: Sum, to: AggregateArguments) -> NativeAggregates:
    column, kind = to.columns[0], to.types[0]
    if kind == FLOAT64:
        return NativeAggregates((f.collect_list(column),), exact_sums.float_sum)
    if kind == INT32 or isinstance(kind, DecimalType):
        return NativeAggregates((f.sum(column),), _as_it_is)
    return NativeAggregates(exact_sums.half_sums(column), exact_sums.int_sum)


@measure.register(Mean)
def _(aggregation: Mean, to: AggregateArguments) -> NativeAggregates:
    column, kind = to.columns[0], to.types[0]
    if kind == FLOAT64:
        return NativeAggregates((f.collect_list(column),), exact_sums.float_mean)
    if isinstance(kind, DecimalType):
        return NativeAggregates((f.avg(column),), _as_it_is)
    return NativeAggregates(
        (*exact_sums.half_sums(column.cast("long")), f.count(column)), exact_sums.int_mean
    )
