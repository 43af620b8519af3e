"""Lowering of Catalyst's aggregate functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_
from typing import TypeAlias

from penstock.errors import UnsupportedQuery
from penstock.expr.tree import Call, Expr, Literal
from penstock.flow import aggregates
from penstock.flow.aggregates import Aggregation
from penstock.queries.catalyst_plan import CatalystNode
from penstock.queries.expressions import Scope

Lowering: TypeAlias = Callable[[tuple[Expr, ...]], Aggregation]

_LOWERINGS: dict[str, Lowering] = {
    "Sum": lambda arguments: aggregates.sum(arguments[0]),
    "Average": lambda arguments: aggregates.mean(arguments[0]),
    "Min": lambda arguments: aggregates.min(arguments[0]),
    "Max": lambda arguments: aggregates.max(arguments[0]),
    "MaxBy": lambda arguments: aggregates.last(arguments[0], by=arguments[1]),
    "MinBy": lambda arguments: aggregates.first(arguments[0], by=arguments[1]),
    # In which order, Spark leaves open; here they are sorted.
    "CollectList": lambda arguments: aggregates.collect(arguments[0]),
    # Which row is the first, Spark leaves open, too.
    "First": lambda arguments: aggregates.min(arguments[0]),
    "Last": lambda arguments: aggregates.max(arguments[0]),
    "AnyValue": lambda arguments: aggregates.min(arguments[0]),
}


def lower_aggregate(node: CatalystNode, scope: Scope) -> Aggregation:
    """Lower an `AggregateExpression`. Raises `UnsupportedQuery`."""
    function = node.child("aggregateFunction")
    condition = node.tree("filter")
    arguments = scope.lower_all(function.children)
    if condition is not None:
        passes = scope.lower(condition)
        arguments = tuple(Call("when", (passes, a, Literal(None))) for a in arguments)
    if function.kind == "Count":
        return _count(function, arguments, distinct=node.fields["isDistinct"])
    lowering = _LOWERINGS.get(function.kind)
    if lowering is None:
        raise UnsupportedQuery(
            f"the query aggregates by {function.kind}, which has no incremental form yet",
            function=function.kind,
        )
    if node.fields["isDistinct"] and function.kind not in ("Min", "Max"):
        raise UnsupportedQuery(f"{function.kind} of distinct values", function=function.kind)
    return lowering(arguments)


def _count(function: CatalystNode, arguments: tuple[Expr, ...], *, distinct: bool) -> Aggregation:
    if distinct:
        if len(arguments) != 1:
            raise UnsupportedQuery("count(DISTINCT ...) of several columns", function="count")
        return aggregates.count_distinct(arguments[0])
    constants = all(
        child.kind == "Literal" and child.fields["value"] is not None for child in function.children
    )
    if constants and all(not isinstance(a, Call) or a.function != "when" for a in arguments):
        return aggregates.count()
    if len(arguments) == 1:
        return aggregates.count(arguments[0])
    known = reduce(and_, (a.is_not_null() for a in arguments))
    return aggregates.count(Call("when", (known, Literal(1), Literal(None))))


def empty_value(node: CatalystNode, result: Expr) -> Expr:
    """Return what an aggregate of everything is where there are no rows: a count is 0, all else null."""
    return (
        Call("coalesce", (result, Literal(0))) if node.child("aggregateFunction").kind == "Count" else result
    )
