"""Lowering of Catalyst's aggregate functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import Any, TypeAlias, cast

from headrace.errors import UnsupportedQuery
from headrace.expr.tree import Call, Expr, Literal
from headrace.expr.types import FLOAT64
from headrace.operators.aggregate import collected_values, counts, extremes, sums
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.operators.aggregate.collected_values import BitOperation, Bits, StringAgg
from headrace.operators.aggregate.counts import of_distinct
from headrace.operators.aggregate.histograms import Histogram
from headrace.operators.aggregate.moments import Moments
from headrace.operators.aggregate.percentiles import Mode, Percentile
from headrace.operators.aggregate.power_sums import Moment
from headrace.operators.aggregate.sums import NullOnError
from headrace.queries.catalyst_plan import CONSTANT, CatalystNode, refusals_of
from headrace.queries.expressions import Scope, orderings

Lower: TypeAlias = Callable[[CatalystNode], Expr]
"""Lowers a child of an aggregate function; null for rows that its filter drops."""

Lowering: TypeAlias = Callable[[CatalystNode, Lower], Aggregation]


def _of_one(make: Callable[[Expr], Aggregation]) -> Lowering:
    return lambda node, lower: make(lower(node.children[0]))


def _of_two(make: Callable[[Expr, Expr], Aggregation]) -> Lowering:
    return lambda node, lower: make(lower(node.children[0]), lower(node.children[1]))


def _moment(moment: Moment) -> Lowering:
    return lambda node, lower: Moments(moment, *map(lower, node.children))


def _percentile(node: CatalystNode, lower: Lower) -> Aggregation:
    given = node.child("frequencyExpression")
    frequency = None if given.kind == "Literal" and given.fields["value"] == "1" else lower(given)
    value, descending = lower(node.child("child")), bool(node.fields["reverse"])
    return Percentile(value, _parts(node), False, descending, frequency)


def _percentile_disc(node: CatalystNode, lower: Lower) -> Aggregation:
    value = Call("cast", (lower(node.child("child")),), (FLOAT64,))
    return Percentile(value, _parts(node), True, bool(node.fields["reverse"]))


def _parts(node: CatalystNode) -> float | tuple[float, ...]:
    """Return the constant parts of a percentile."""
    parts = node.child("percentageExpression")
    several: Any = parts.fields.get(CONSTANT)
    if several is not None:
        return tuple(map(float, cast("tuple[Any, ...]", several)))
    if parts.kind != "Literal":
        raise UnsupportedQuery("the part of a percentile is no constant", function=node.kind)
    return float(parts.fields["value"])


def _histogram(node: CatalystNode, lower: Lower) -> Aggregation:
    value, bins = node.children
    if bins.kind != "Literal":
        raise UnsupportedQuery("the number of bins of a histogram is no constant", function=node.kind)
    return Histogram(lower(value), int(bins.fields["value"]))


def _string_agg(node: CatalystNode, lower: Lower) -> Aggregation:
    delimiter = node.child("delimiter")
    if delimiter.kind != "Literal":
        raise UnsupportedQuery("the delimiter of listagg is no constant", function=node.kind)
    by = tuple(orderings((node.children[at] for at in node.fields["orderExpressions"]), lower))
    return StringAgg(lower(node.child("child")), delimiter.fields["value"] or "", by)


_LOWERINGS: dict[str, Lowering] = {
    "Sum": _of_one(sums.Sum),
    "Average": _of_one(sums.Mean),
    "TrySum": _of_one(lambda expr: NullOnError(sums.Sum(expr))),
    "TryAverage": _of_one(lambda expr: NullOnError(sums.Mean(expr))),
    "Min": _of_one(extremes.Min),
    "Max": _of_one(extremes.Max),
    "MaxBy": _of_two(extremes.Last),
    "MinBy": _of_two(extremes.First),
    # In which order, Spark leaves open; here they are sorted.
    "CollectList": _of_one(collected_values.Collect),
    "CollectSet": _of_one(lambda expr: collected_values.collect(expr, distinct=True)),
    # Which row is the first, Spark leaves open, too.
    "First": _of_one(extremes.Min),
    "Last": _of_one(extremes.Max),
    "AnyValue": _of_one(extremes.Min),
    # Spark approximates these two in little memory; here they are exact.
    "HyperLogLogPlusPlus": _of_one(counts.CountDistinct),
    "ApproximatePercentile": lambda node, lower: Percentile(lower(node.child("child")), _parts(node), True),
    "Percentile": _percentile,
    "PercentileDisc": _percentile_disc,
    # Of several, Spark leaves open which one, unless asked for the least (reversed) or the greatest.
    "Mode": lambda node, lower: Mode(lower(node.child("child")), node.fields.get("reverseOpt") is False),
    "HistogramNumeric": _histogram,
    "ListAgg": _string_agg,
    "BitAndAgg": _of_one(lambda expr: Bits(expr, BitOperation.AND)),
    "BitOrAgg": _of_one(lambda expr: Bits(expr, BitOperation.OR)),
    "BitXorAgg": _of_one(lambda expr: Bits(expr, BitOperation.XOR)),
    "VarianceSamp": _moment(Moment.VAR_SAMP),
    "VariancePop": _moment(Moment.VAR_POP),
    "StddevSamp": _moment(Moment.STDDEV_SAMP),
    "StddevPop": _moment(Moment.STDDEV_POP),
    "Skewness": _moment(Moment.SKEWNESS),
    "Kurtosis": _moment(Moment.KURTOSIS),
    "CovSample": _moment(Moment.COVAR_SAMP),
    "CovPopulation": _moment(Moment.COVAR_POP),
    "Corr": _moment(Moment.CORR),
    "RegrReplacement": _moment(Moment.SUM_OF_SQUARES),
    "RegrSXY": _moment(Moment.REGR_SXY),
    "RegrSlope": _moment(Moment.REGR_SLOPE),
    "RegrIntercept": _moment(Moment.REGR_INTERCEPT),
    "RegrR2": _moment(Moment.REGR_R2),
}
_INDIFFERENT = frozenset(
    {"Min", "Max", "MinBy", "MaxBy", "First", "Last", "AnyValue", "CollectSet", "HyperLogLogPlusPlus"}
    | {"BitAndAgg", "BitOrAgg"}
)
"""Functions to which it makes no difference how often a value is there."""


def lower_aggregate(node: CatalystNode, scope: Scope) -> Aggregation:
    """Lower an `AggregateExpression`. Raises `RefusedNode`."""
    with refusals_of(node):
        return _lowered(node, scope)


def _lowered(node: CatalystNode, scope: Scope) -> Aggregation:
    function = node.child("aggregateFunction")
    condition, distinct = node.tree("filter"), bool(node.fields["isDistinct"])
    passes = None if condition is None else scope.lower(condition)

    def lower(child: CatalystNode) -> Expr:
        value = scope.lower(child)
        return value if passes is None else Call("when", (passes, value, Literal(None)))

    if function.kind == "Count":
        arguments = tuple(map(lower, function.children))
        if distinct:
            return counts.count_distinct(*arguments)
        return _count(function, arguments, filtered=passes is not None)
    lowering = _LOWERINGS.get(function.kind)
    if lowering is None:
        raise UnsupportedQuery(
            f"the query aggregates by {function.kind}, which has no incremental form yet",
            function=function.kind,
        )
    return of_distinct(lowering(function, lower), distinct and function.kind not in _INDIFFERENT)


def _count(function: CatalystNode, arguments: tuple[Expr, ...], *, filtered: bool) -> Aggregation:
    constants = all(
        child.kind == "Literal" and child.fields["value"] is not None for child in function.children
    )
    if constants and not filtered:
        return counts.count()
    if len(arguments) == 1:
        return counts.count(arguments[0])
    known = reduce(and_, (a.is_not_null() for a in arguments))
    return counts.count(Call("when", (known, Literal(1), Literal(None))))
