"""Lowering of Catalyst's window functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, TypeAlias

from headrace.errors import UnsupportedQuery
from headrace.expr.tree import Column, Expr
from headrace.operators.over import navigation, ranks
from headrace.operators.over.window_function import Frame, FrameUnit, Months, Over, WindowFunction
from headrace.queries.aggregates import lower_aggregate
from headrace.queries.catalyst_plan import CatalystNode, refusals_of, registrar
from headrace.queries.expressions import Scope, orderings
from headrace.queries.intervals import is_of_months
from headrace.queries.relations import Planner, Relation, lowers

Lowering: TypeAlias = Callable[[CatalystNode, Scope], WindowFunction]
_LOWERINGS: dict[str, Lowering] = {
    "RowNumber": lambda node, scope: ranks.RowNumber(),
    "Rank": lambda node, scope: ranks.Rank(),
    "DenseRank": lambda node, scope: ranks.DenseRank(),
    "PercentRank": lambda node, scope: ranks.PercentRank(),
    "CumeDist": lambda node, scope: ranks.CumeDist(),
    "NTile": lambda node, scope: ranks.ntile(_constant(node, 0)),
}
of_kind = registrar(_LOWERINGS)


@lowers("Window")
def _window(node: CatalystNode, planner: Planner) -> Relation:
    node = _in_order_of_rows(node)
    partition, order, listed = map(node.trees, ("partitionSpec", "orderSpec", "windowExpressions"))
    below = planner.relation(node.children[0])
    rows, scope = planner.with_subqueries(Relation(below.rows, below.columns), [*partition, *order, *listed])
    per, by = scope.lower_all(partition), tuple(orderings(order, scope.lower))
    added: dict[str, Any] = {}
    known: list[tuple[CatalystNode, Expr]] = []
    for each in listed:
        # What stands there may be a constant by now, or an attribute of the rows.
        for function in (part for part in each.walk() if part.kind == "WindowExpression"):
            whole = each.kind == "Alias" and each.child("child") is function
            name = planner.name(each.expr_id, each.fields["name"]) if whole else planner.fresh("over")
            known.append((function, Column(name)))
            with refusals_of(each):
                added[name] = _over(function, scope, per, by)
    stream = rows.stream.with_columns(**added) if added else rows.stream
    columns, scope = dict(below.columns), replace(scope, computed=tuple(known))
    computed: dict[str, Expr] = {}
    for each in listed:
        value = scope.lower(each)
        if not isinstance(value, Column):
            name = planner.name(each.expr_id, each.fields["name"])
            computed[name] = value
            value = Column(name)
        columns[each.expr_id] = value.name
    return Relation(stream.with_columns(**computed) if computed else stream, columns)


def _in_order_of_rows(node: CatalystNode) -> CatalystNode:
    """Return a window with the order of the rows that it numbers, if it has none itself.

    So Catalyst writes the limit of a correlated subquery, which may be sorted by columns that it drops.
    """
    above = node.children[0]
    rows = above.children[0] if above.kind == "Project" else above
    parts = (part for each in node.trees("windowExpressions") for part in each.walk())
    if node.fields["orderSpec"] or rows.kind != "Sort" or all(part.kind != "RowNumber" for part in parts):
        return node
    if rows is not above:
        listed = {each.expr_id for each in above.trees("projectList")}
        read = {
            part.expr_id: [part.fields]
            for each in rows.trees("order")
            for part in each.walk()
            if part.kind == "AttributeReference" and part.expr_id not in listed
        }
        projected = [*above.fields["projectList"], *read.values()]
        above = replace(above, fields={**above.fields, "projectList": projected})
    return replace(node, fields={**node.fields, "orderSpec": rows.fields["order"]}, children=(above,))


@lowers("WindowGroupLimit")
def _group_limit(node: CatalystNode, planner: Planner) -> Relation:
    below, function = planner.relation(node.children[0]), node.tree("rankLikeFunction")
    assert function is not None
    if function.kind != "RowNumber":
        return below  # peers of the last row come, too, so there is no number of rows
    per = below.scope.lower_all(node.trees("partitionSpec"))
    by = list(orderings(node.trees("orderSpec"), below.scope.lower))
    return Relation(below.stream.top_k(node.fields["limit"], by=by, per=per), below.columns)


def _over(node: CatalystNode, scope: Scope, per: tuple[Expr, ...], by: Any) -> Over:
    function, definition = node.child("windowFunction"), node.child("windowSpec")
    if function.kind == "AggregateExpression" and function.child("aggregateFunction").kind in (
        "First",
        "Last",
    ):
        made = _end_value(function.child("aggregateFunction"), scope)
    elif function.kind == "AggregateExpression":
        made = lower_aggregate(function, scope)
    elif function.kind in _LOWERINGS:
        made = _LOWERINGS[function.kind](function, scope)
    else:
        raise UnsupportedQuery(
            f"the query uses {function.kind} over rows, which has no incremental form yet",
            function=function.kind,
        )
    frame = _frame(definition.children[-1]) if made.framed else None
    return Over(made, per, by, frame)


def _end_value(node: CatalystNode, scope: Scope) -> WindowFunction:
    make = navigation.first_value if node.kind == "First" else navigation.last_value
    return make(scope.lower(node.child("child")), ignore_nulls=bool(node.fields["ignoreNulls"]))


@of_kind("Lag", "Lead")
def _lag(node: CatalystNode, scope: Scope) -> WindowFunction:
    value, default, offset = scope.lower(node.child("input")), node.child("default"), _constant(node, 1)
    other = None if default.kind == "Literal" and default.fields["value"] is None else scope.lower(default)
    # Lag's offset is as the query has it; that of lead counts forward.
    offset = offset if node.kind == "Lag" else -offset
    return navigation.Lag(value, offset, other, bool(node.fields["ignoreNulls"]))


@of_kind("NthValue")
def _nth_value(node: CatalystNode, scope: Scope) -> WindowFunction:
    value, ignores = scope.lower(node.child("input")), bool(node.fields["ignoreNulls"])
    return navigation.nth_value(value, _constant(node, 1), ignore_nulls=ignores)


def _constant(node: CatalystNode, at: int) -> int:
    child = node.children[at]
    sign = 1
    while child.kind == "UnaryMinus":
        sign, child = -sign, child.children[0]
    if child.kind != "Literal":
        raise UnsupportedQuery(f"the offset of {node.kind} is no constant", function=node.kind)
    return sign * int(child.fields["value"])


def _frame(node: CatalystNode) -> Frame:
    unit = FrameUnit.ROWS if node.setting("frameType") == "RowFrame" else FrameUnit.RANGE
    lower, upper = (_bound(node.child(name)) for name in ("lower", "upper"))
    return Frame(unit, lower, upper)


def _bound(node: CatalystNode) -> Any:
    sign: Any = 1
    while node.kind == "UnaryMinus":
        sign, node = -sign, node.children[0]
    if node.kind in ("UnboundedPreceding", "UnboundedFollowing"):
        return None
    if node.kind == "CurrentRow":
        return 0
    text, type_ = node.fields.get("value"), node.fields.get("dataType")
    if node.kind == "Literal" and text is not None and isinstance(type_, str):
        if type_ in ("integer", "long", "short", "byte"):
            return sign * int(text)
        if type_ in ("double", "float"):
            return sign * float(text)
        if type_.startswith("decimal"):
            return sign * Decimal(text)
        if type_.startswith("interval"):
            return (
                Months(sign * int(text)) if is_of_months(node) else sign * timedelta(microseconds=int(text))
            )
    raise UnsupportedQuery(f"a frame has a bound of type {type_}", fix="give a number or an interval")
