"""Group aggregates as native columns, independent of row order.

An aggregate is two things: native aggregate functions over the group
(`measures`), and the answer made of what they measured (`answer`). Sums and
means of integers and decimals are exact and native; those of floats gather the
values of a group and are summed exactly in Python, because a native sum of
floats depends on the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import reduce, singledispatch
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from headrace.errors import NotOnSpark
from headrace.expr.check import check
from headrace.expr.spark_columns import from_hashable, hashable, nullable_type, representative, spark_type
from headrace.expr.types import INT64, DecimalType, Field, IntervalType
from headrace.expr.typing_rules import is_float
from headrace.lowering.forms import lower_operator
from headrace.operators.aggregate import Aggregate
from headrace.operators.aggregates import (
    Aggregation,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Mean,
    Min,
    NullOnError,
    OfDistinct,
    Sum,
)
from headrace.operators.moment_aggregates import Moments
from headrace.operators.value_aggregates import Bits, Histogram, Mode, Percentile, StringAgg
from headrace.spark.batch.operators import Site, exact_column
from headrace.spark.lowering import exact_sums
from headrace.spark.lowering.histograms import histogram_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from headrace.expr.types import DataType


@dataclass(frozen=True, slots=True)
class NativeAggregates:
    """Native aggregates over a group, and the function that computes the answer column from them."""

    measures: tuple[Column, ...]
    answer: Callable[..., Column]


@dataclass(frozen=True, slots=True)
class AggregateArguments:
    """Columns of an aggregation's arguments, by name, and their types, with the field of the answer.

    distinct: of equal arguments, one counts.
    """

    names: tuple[str, ...]
    types: tuple[DataType, ...]
    out: Field
    distinct: bool = False

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(map(exact_column, self.names))

    def sql(self, text: str) -> Column:
        """Return an aggregate from its SQL, where `{0}` stands for the argument, `{of}` for DISTINCT."""
        return f.expr(text.format(f"`{self.names[0]}`", of="DISTINCT" if self.distinct else ""))

    def values(self) -> Column:
        """Return the list of the first argument's values."""
        return self.listed(self.columns[0])

    def rows(self) -> Column:
        """Return the list of the arguments of rows without a null, as structs."""
        known = reduce(and_, (column.isNotNull() for column in self.columns))
        return self.listed(f.when(known, f.struct(*self.columns)))

    def listed(self, column: Column) -> Column:
        """Return the list of the values of a column, without null."""
        return (f.collect_set if self.distinct else f.collect_list)(column)


@lower_operator.register(Aggregate)
def _(operator: Aggregate, site: Site) -> DataFrame:
    fields = site.node.schema.fields
    of_keys = [check(expr, site.schemas[0]).type for _, expr in operator.keys]
    keys = [
        hashable(type, site.column(expr)).alias(f"key {at}")
        for at, (type, (_, expr)) in enumerate(zip(of_keys, operator.keys, strict=True))
    ]
    columns = list(keys)
    measures: list[Column] = []
    answers = [
        from_hashable(type, exact_column(f"key {at}")).alias(name)
        for at, (type, (name, _)) in enumerate(zip(of_keys, operator.keys, strict=True))
    ]
    for number, (name, aggregation) in enumerate(operator.aggregations):
        types = tuple(check(expr, site.schemas[0]).type for expr in aggregation.arguments())
        given = [
            representative(type_, site.column(expr))
            for type_, expr in zip(types, aggregation.arguments(), strict=True)
        ]
        labels = [f"argument {number} {at}" for at in range(len(given))]
        columns += [column.alias(label) for column, label in zip(given, labels, strict=True)]
        out = fields[len(operator.keys) + number]
        measured = measure(aggregation, AggregateArguments(tuple(labels), types, out))
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


@measure.register(OfDistinct)
def _(aggregation: OfDistinct, to: AggregateArguments) -> NativeAggregates:
    if not isinstance(
        aggregation.of,
        Sum | Mean | NullOnError | Collect | Percentile | Histogram | StringAgg | Bits | Moments,
    ):
        raise NotOnSpark(f"{aggregation} has no form as a batch on Spark")
    return measure(aggregation.of, replace(to, distinct=True))


@measure.register(Collect)
def _(aggregation: Collect, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((to.values(),), f.sort_array)


@measure.register(Sum)
def _(aggregation: Sum, to: AggregateArguments) -> NativeAggregates:
    column, kind = to.columns[0], to.types[0]
    if is_float(kind):
        return NativeAggregates((to.values(),), exact_sums.float_sum)
    if isinstance(kind, IntervalType):
        return NativeAggregates((to.sql(_SUM_OF_INTERVALS),), exact_sums.interval_sum)
    if kind != INT64:
        return NativeAggregates((to.sql("sum({of} {0})"),), _as_it_is)
    if to.distinct:
        return NativeAggregates((to.sql(_SUM_OF_DISTINCT),), _as_it_is)
    return NativeAggregates(exact_sums.half_sums(column), exact_sums.int_sum)


@measure.register(Mean)
def _(aggregation: Mean, to: AggregateArguments) -> NativeAggregates:
    column, kind = to.columns[0], to.types[0]
    if is_float(kind):
        return NativeAggregates((to.values(),), exact_sums.float_mean)
    if isinstance(kind, DecimalType):
        return NativeAggregates((to.sql("avg({of} {0})"),), _as_it_is)
    if isinstance(kind, IntervalType):
        counted = f.count_distinct(column) if to.distinct else f.count(column)
        return NativeAggregates((to.sql(_SUM_OF_INTERVALS), counted), exact_sums.interval_mean)
    if to.distinct:
        return NativeAggregates((to.sql(_SUM_OF_DISTINCT), f.count_distinct(column)), exact_sums.mean_of)
    return NativeAggregates(
        (*exact_sums.half_sums(column.cast("long")), f.count(column)), exact_sums.int_mean
    )


# Halves of distinct values need not be distinct, so these are summed as decimals.
_SUM_OF_DISTINCT = "sum(DISTINCT CAST({0} AS DECIMAL(20, 0)))"

# Spark's own sum of intervals fails if it leaves the range on its way, which depends on the order of rows.
_SUM_OF_INTERVALS = "sum({of} CAST(CAST({0} AS INTERVAL DAY TO SECOND) AS DECIMAL(28, 6)))"


@measure.register(NullOnError)
def _(aggregation: NullOnError, to: AggregateArguments) -> NativeAggregates:
    name, kind = "try_sum" if isinstance(aggregation.of, Sum) else "try_avg", to.types[0]
    if isinstance(kind, DecimalType):
        return NativeAggregates((to.sql(f"{name}({{of}} {{0}})"),), _as_it_is)
    if isinstance(kind, IntervalType) and name == "try_sum":
        return NativeAggregates((to.sql(_SUM_OF_INTERVALS),), exact_sums.interval_sum_or_null)
    if kind != INT64 or name == "try_avg":
        return measure(aggregation.of, to)
    if to.distinct:
        return NativeAggregates((to.sql(_SUM_OF_DISTINCT),), lambda total: total.try_cast("long"))
    halves = exact_sums.half_sums(to.columns[0])
    return NativeAggregates(
        halves, lambda upper, lower: exact_sums.combine_half_sums(upper, lower).try_cast("long")
    )


@measure.register(Percentile)
def _(aggregation: Percentile, to: AggregateArguments) -> NativeAggregates:
    if aggregation.frequency is not None:
        return _with_frequency(aggregation, to)

    def answer(values: Column) -> Column:
        ordered = f.sort_array(values, asc=not aggregation.descending)
        between = _interpolated_interval if isinstance(to.types[0], IntervalType) else _interpolated
        one = _discrete if aggregation.discrete else between
        if isinstance(aggregation.at, tuple):
            several = f.array(*(one(ordered, at) for at in aggregation.at))
            return f.when(f.size(values) > 0, several)
        return one(ordered, aggregation.at)

    return NativeAggregates((to.values(),), answer)


def _with_frequency(aggregation: Percentile, to: AggregateArguments) -> NativeAggregates:
    if aggregation.discrete or aggregation.descending:
        raise NotOnSpark(f"{aggregation} has no form as a batch on Spark")
    several = aggregation.at if isinstance(aggregation.at, tuple) else (aggregation.at,)
    parts = ", ".join(f"{part!r}D" for part in several)
    at = f"array({parts})" if isinstance(aggregation.at, tuple) else parts
    return NativeAggregates((to.sql(f"percentile({{of}} {{0}}, {at}, `{to.names[1]}`)"),), _as_it_is)


def _discrete(ordered: Column, at: float) -> Column:
    return f.get(ordered, f.greatest(f.ceil(f.size(ordered) * f.lit(at)).cast("int") - 1, f.lit(0)))


def _interpolated(ordered: Column, at: float) -> Column:
    place = (f.size(ordered) - 1) * f.lit(at)
    before, behind = f.floor(place), f.ceil(place)
    least, most = f.get(ordered, before.cast("int")), f.get(ordered, behind.cast("int"))
    start = least.cast("double")
    between = start + (place - before) * (most.cast("double") - start)
    return f.when(least == most, start).otherwise(between)


def _interpolated_interval(ordered: Column, at: float) -> Column:
    unit = f.lit(timedelta(microseconds=1))
    micros = _interpolated(f.transform(ordered, lambda each: f.call_function("div", each, unit)), at)
    longest = f.lit(2**63 - 1)
    return unit * f.when(micros < 2.0**63, micros.cast("bigint")).when(micros.isNotNull(), longest)


@measure.register(Histogram)
def _(aggregation: Histogram, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((to.values(),), histogram_of(aggregation.bins, to.types[0]))


@measure.register(Mode)
def _(aggregation: Mode, to: AggregateArguments) -> NativeAggregates:
    order = "DESC" if aggregation.greatest else "ASC"
    return NativeAggregates((to.sql(f"mode() WITHIN GROUP (ORDER BY {{0}} {order})"),), _as_it_is)


@measure.register(StringAgg)
def _(aggregation: StringAgg, to: AggregateArguments) -> NativeAggregates:
    text, by = to.names[0], tuple(zip(to.names[1:], aggregation.by, strict=True))

    def compare(one: Column, other: Column) -> Column:
        found = _compare(one.getField(text), other.getField(text))
        for name, ordering in reversed(by):
            sides = (other, one) if ordering.descending else (one, other)
            of_this = _compare(*(side.getField(name) for side in sides))
            found = f.when(of_this != 0, of_this).otherwise(found)
        return found

    def answer(rows: Column) -> Column:
        texts = f.transform(f.array_sort(rows, compare), lambda row: row.getField(text))
        return f.when(f.size(rows) > 0, f.array_join(texts, aggregation.separator))

    rows = f.when(to.columns[0].isNotNull(), f.struct(*to.columns))
    return NativeAggregates((to.listed(rows),), answer)


def _compare(one: Column, other: Column) -> Column:
    """Compare two values, null first: -1, 0 or 1."""
    less = (one.isNull() & other.isNotNull()) | f.coalesce(one < other, f.lit(False))
    same = one.eqNullSafe(other)
    return f.when(same, f.lit(0)).when(less, f.lit(-1)).otherwise(f.lit(1))


@measure.register(Bits)
def _(aggregation: Bits, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((to.sql(f"bit_{aggregation.operation.value}({{of}} {{0}})"),), _as_it_is)


@measure.register(Moments)
def _(aggregation: Moments, to: AggregateArguments) -> NativeAggregates:
    return NativeAggregates((to.rows(),), exact_sums.moments_of(aggregation.moment))
