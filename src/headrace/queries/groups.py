"""Lowering of Catalyst's aggregates: groups, also of sessions and pivots, and of Python functions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headrace.expr.tree import Call, Column, Expr, Literal
from headrace.expr.types import DataType
from headrace.operators.aggregate import extremes
from headrace.operators.aggregate.aggregation import Aggregation
from headrace.queries.aggregates import lower_aggregate
from headrace.queries.catalyst_plan import PIVOT, CatalystNode, parse_type, same_expression
from headrace.queries.event_time import closing_sessions, first_of_each, grouped, session_key, with_session
from headrace.queries.expressions import Scope, typed_constant
from headrace.queries.python_functions import collected, with_aggregate
from headrace.queries.relations import Planner, Relation, lowers


def _is_first(node: CatalystNode) -> bool:
    """Return whether an aggregate is the value of any one row, as in `dropDuplicates`."""
    function = node.child("aggregateFunction")
    return (
        function.kind in ("First", "AnyValue")
        and not function.fields["ignoreNulls"]
        and not node.fields.get("filter")
    )


@lowers("Aggregate")
def _aggregate(node: CatalystNode, planner: Planner) -> Relation:
    keys, results = node.trees("groupingExpressions"), node.trees("aggregateExpressions")
    below = planner.relation(node.children[0])
    found: list[CatalystNode] = []
    for result in results:
        for part in result.walk():
            if part.kind == "AggregateExpression" and not any(same_expression(part, f) for f in found):
                found.append(part)
    below, scope = planner.with_subqueries(below, [*keys, *found])
    session = session_key(keys)
    closing = None if session is None else closing_sessions(below, session)
    if session is not None and closing is None:
        below = with_session(
            below, session, scope.lower_all(tuple(key for key in keys if key is not session))
        )
    named_keys = {f"key {at}": scope.lower(key) for at, key in enumerate(keys)}
    if keys and found and all(map(_is_first, found)):
        # Of all columns the same row: the least one.
        first = first_of_each(below, tuple(named_keys.values()))
        of_row = [(part, scope.lower(part.child("aggregateFunction").children[0])) for part in found]
        return planner.projected(first, results, Scope(scope.columns, tuple(of_row)))
    if not keys and not found:
        # Of aggregates that nobody reads, there is one row all the same.
        after, held = planner.with_subqueries(Relation(planner.one_row(), {}), results)
        return planner.projected(after, results, held)
    parts = [_part(part, f"aggregate {at}", scope) for at, part in enumerate(found)]
    aggregations = {name: each for part in parts for name, each in part.aggregations.items()}
    groups = grouped(below.stream, named_keys, aggregations, closing, closes=planner.closes)
    for part in parts:
        if part.function is not None:
            (rows,) = part.aggregations
            groups = with_aggregate(part.function, groups, rows, part.name)
    computed = [(key, Column(name)) for key, name in zip(keys, named_keys, strict=True)]
    values = [(node, part.value) for node, part in zip(found, parts, strict=True)]
    if not keys:
        types = {each.name: each.type for each in groups.schema.fields}
        values = [(node, _of_all(part, types)) for node, part in zip(found, parts, strict=True)]
        whole = groups.with_columns(one=Literal(1))
        groups = planner.one_row().join(whole, on="one", how="left")
    known = (*values, *computed)
    after, held = planner.with_subqueries(Relation(groups, {}), results, [node for node, _ in known])
    return planner.projected(after, results, Scope({}, known, held.subqueries))


@dataclass(frozen=True, slots=True)
class _Part:
    """Lowering of one aggregate of a group.

    name:     of its column.
    function: the Python function that makes it of the list that its one aggregation is.
    """

    name: str
    aggregations: Mapping[str, Aggregation]
    value: Expr
    function: CatalystNode | None = None


def _of_all(part: _Part, types: Mapping[str, DataType]) -> Expr:
    """Return the value of an aggregate of everything, which has one also without rows."""
    nothing = part.aggregations[part.name].of_no_rows if part.name in part.aggregations else None
    if nothing is None:
        return part.value
    return Call("coalesce", (part.value, typed_constant(nothing, types[part.name])))


def _part(node: CatalystNode, name: str, scope: Scope) -> _Part:
    function = node.child("aggregateFunction")
    if function.kind == "PythonUDAF":
        return _Part(name, {f"rows of {name}": collected(function, scope)}, Column(name), function)
    if function.kind == "PivotFirst":
        return _pivot(function, function.fields[PIVOT], name, scope)
    return _Part(name, {name: lower_aggregate(node, scope)}, Column(name))


def _pivot(function: CatalystNode, values: list[object], name: str, scope: Scope) -> _Part:
    """Lower a pivot: the list of its values, each of the one row that has a value of the pivoted column."""
    column, value = function.child("pivotColumn"), scope.lower(function.child("valueColumn"))
    type, of = parse_type(column.fields["dataType"]), scope.lower(column)
    aggregations = {
        f"{name} {at}": extremes.min(
            Call("when", (Call("eq_null_safe", (of, typed_constant(wanted, type))), value, Literal(None)))
        )
        for at, wanted in enumerate(values)
    }
    return _Part(name, aggregations, Call("array", tuple(map(Column, aggregations))))
