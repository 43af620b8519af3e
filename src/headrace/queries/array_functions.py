"""Lowering of Spark's functions of lists and maps, and of the functions that they apply."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from headrace.expr.constructors import fresh_names, lambda_of, variable
from headrace.expr.tree import Call, Expr, Literal
from headrace.queries.catalyst_plan import CatalystNode, parse_tree
from headrace.queries.expressions import Scope, lowers
from headrace.queries.intervals import Interval, constant_interval, is_of_months
from headrace.queries.scalar_functions import refuse


@lowers("LambdaFunction")
def _lambda(node: CatalystNode, scope: Scope) -> Expr:
    body, *parameters = node.children
    around = tuple(str(each.options[0]) for each in scope.variables.values())
    names = fresh_names(tuple(each.fields["name"] for each in parameters), around)
    own = {each.expr_id: variable(name) for each, name in zip(parameters, names, strict=True)}
    return lambda_of(replace(scope, variables={**scope.variables, **own}).lower(body), names)


@lowers("NamedLambdaVariable")
def _variable(node: CatalystNode, scope: Scope) -> Expr:
    return scope.variables[node.expr_id]


@lowers("ArrayAggregate")
def _aggregate(node: CatalystNode, scope: Scope) -> Expr:
    values, start, merge, finish = node.children
    body, state, *element = merge.children
    if isinstance(state.fields["dataType"], dict):
        # Spark looks at the types of its fields only, not at their names.
        named = CatalystNode("Cast", {"child": 0, "dataType": state.fields["dataType"]}, (body,))
        merge = CatalystNode(merge.kind, merge.fields, (named, state, *element))
    functions = (merge,) if _is_identity(finish) else (merge, finish)
    return Call("aggregate", scope.lower_all((values, start, *functions)))


def _is_identity(function: CatalystNode) -> bool:
    body, parameter = function.children
    return body.kind == "NamedLambdaVariable" and body.expr_id == parameter.expr_id


@lowers("ArraySort")
def _sorted(node: CatalystNode, scope: Scope) -> Expr:
    values, function = node.children
    if _is_default_order(function):
        return Call("array_sort", (scope.lower(values),))
    return Call("array_sort", scope.lower_all(node.children))


def _is_default_order(function: CatalystNode) -> bool:
    """Return whether a comparison is the one of `array_sort` without one: nulls last, then by `<` and `>`."""
    body, *parameters = function.children
    names = {each.expr_id: name for each, name in zip(parameters, ("left", "right"), strict=True)}

    def shown(node: CatalystNode) -> str:
        if node.kind == "NamedLambdaVariable":
            return names.get(node.expr_id, "")
        return node.fields["value"] if node.kind == "Literal" else node.kind

    return list(map(shown, body.walk())) == [
        *("If", "And", "IsNull", "left", "IsNull", "right", "0", "If", "IsNull", "left", "1"),
        *("If", "IsNull", "right", "-1", "If", "LessThan", "left", "right", "-1"),
        *("If", "GreaterThan", "left", "right", "1", "0"),
    ]


@lowers("KnownNotContainsNull")
def _compact(node: CatalystNode, scope: Scope) -> Expr:
    (child,) = node.children
    if child.kind == "ArrayFilter" and child.children[1].children[0].kind == "IsNotNull":
        return Call("array_compact", (scope.lower(child.children[0]),))
    return scope.lower(child)


@lowers("ElementAt")
def _element_at(node: CatalystNode, scope: Scope) -> Expr:
    values, place = node.children
    if values.kind == "StringSplitSQL":
        return Call("split_part", scope.lower_all((*values.children, place)))
    name = "element_at" if node.fields["failOnError"] else "try_element_at"
    return Call(name, scope.lower_all(node.children))


@lowers("ArrayInsert")
def _insert(node: CatalystNode, scope: Scope) -> Expr:
    if node.fields["legacyNegativeIndex"]:
        refuse("array_insert with spark.sql.legacy.negativeIndexInArrayInsert", "array_insert")
    return Call("array_insert", scope.lower_all(node.children))


@lowers("GetArrayStructFields")
def _fields(node: CatalystNode, scope: Scope) -> Expr:
    field = lambda_of(variable("each").field(node.fields["field"]["name"]), ("each",))
    return Call("transform", (scope.lower(node.child("child")), field))


@lowers("ArraysZip")
def _zipped(node: CatalystNode, scope: Scope) -> Expr:
    names = tuple(str(parse_tree(each).fields["value"]) for each in node.fields["names"])
    return Call("arrays_zip", scope.lower_all(node.children), (names,))


def _days(step: CatalystNode) -> int:
    """Return the days of a constant interval. Raises `UnsupportedQuery` for other intervals."""
    interval = Interval(1, 0, timedelta()) if is_of_months(step) else constant_interval(step)
    span = interval.time + timedelta(days=interval.days)
    if interval.months or span != timedelta(days=span.days):
        refuse("a sequence by steps that are no days", "sequence", "make one of days, and filter it")
    return span.days


@lowers("Sequence")
def _sequence(node: CatalystNode, scope: Scope) -> Expr:
    start, stop, *steps = node.children
    if steps and str(steps[0].fields.get("dataType")).startswith("interval"):
        return Call("sequence", (*scope.lower_all((start, stop)), Literal(_days(steps[0]))))
    return Call("sequence", scope.lower_all((start, stop, *steps)))
