"""Functions that the JSON of a plan does not tell whole: those that are null where they fail, and others.

Catalyst's class of `try_add` is that of `+`, and neither the JSON of a plan nor its text tells them apart. So
the expressions of the JSON are paired with those of the JVM, which are in the same order, and those of
`try_add` get a class of their own, and `from_json` its options. LIKE with an escape character of its own is
refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, cast

from penstock.errors import SourceLocation, UnsupportedQuery
from penstock.queries.catalyst_plan import OPTIONS, simple_name
from penstock.queries.plan_details import expressions, items

_TRIED = ("Add", "Subtract", "Multiply", "Divide", "Remainder", "Cast")

_FROM_JSON = "JsonToStructs"

_MODES = ("evalMode", "evalContext")
"""Fields of an expression that treats errors in several ways."""


def tell_apart(listed: list[Any], plan: Any, location: SourceLocation) -> None:
    """Rename `Add` to `TryAdd`, and so on, in the JSON of a plan.

    Raises `UnsupportedQuery` for other functions that are null where they fail, and for LIKE with ESCAPE.
    """
    pairs = list(_pairs_of_plans(listed, plan))
    if None in pairs:
        _refuse_any(plan, location)
        return
    for node, expression in (pair for pair in pairs if pair is not None):
        _refuse_escape(expression, location)
        if simple_name(node["class"]) == _FROM_JSON:
            node[OPTIONS] = _options(expression)
        if not any(mode in node for mode in _MODES) or _mode(expression) != "TRY":
            continue
        kind = simple_name(node["class"])
        if kind not in _TRIED:
            _refuse(expression, location)
        node["class"] = f"Try{kind}"


_Pair = tuple[dict[str, Any], Any]


def _pairs_of_plans(listed: list[Any], plan: Any) -> Iterator[_Pair | None]:
    """Yield the expressions in the JSON of a plan, each with that of the JVM; None if they differ."""
    operators = list(_prefix(plan))
    if len(operators) != len(listed):
        yield None
        return
    for fields, operator in zip(listed, operators, strict=True):
        known = [node for value in fields.values() for node in _expression_nodes(value)]
        found = [each for root in items(operator.expressions()) for each in _prefix(root)]
        if not _is_same(fields, operator) or len(known) != len(found):
            yield None
            return
        for node, expression in zip(known, found, strict=True):
            if not _is_same(node, expression):
                yield None
                return
            yield node, expression
            if _is_tree(node.get("plan")):
                yield from _pairs_of_plans(node["plan"], expression.plan())


def _prefix(tree: Any) -> Iterator[Any]:
    yield tree
    for child in items(tree.children()):
        yield from _prefix(child)


def _is_same(node: dict[str, Any], tree: Any) -> bool:
    return node["class"] == tree.getClass().getName()


def _is_tree(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    first = cast("list[Any]", value)[0]
    return isinstance(first, dict) and "num-children" in first


def _expression_nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the nodes of the expressions in a field of an operator, in order."""
    if _is_tree(value):
        yield from (node for node in value if ".expressions." in value[0]["class"])
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _expression_nodes(item)


def _options(expression: Any) -> dict[str, str]:
    """Return the options of a `from_json`."""
    pairs = expression.options().iterator()
    found: dict[str, str] = {}
    while pairs.hasNext():
        pair = pairs.next()
        found[pair._1()] = pair._2()
    return found


def _mode(expression: Any) -> str:
    """Return how an expression treats errors; empty if it cannot fail, or always raises."""
    from py4j.protocol import Py4JError

    for mode in (lambda: expression.evalMode(), lambda: expression.evalContext().evalMode()):
        try:
            return str(mode().toString())
        except Py4JError:  # it has no such method
            continue
    return ""


def _refuse_any(plan: Any, location: SourceLocation) -> None:
    """Refuse a plan whose JSON is in another order, if it has a function that the JSON does not tell."""
    for each in (plan, *items(plan.subqueriesAll())):
        for expression in expressions(each):
            _refuse_escape(expression, location)
            if _mode(expression) == "TRY":
                _refuse(expression, location)
            if expression.getClass().getSimpleName() == _FROM_JSON and _options(expression):
                raise UnsupportedQuery(
                    "from_json with options in this query",
                    where=[location],
                    why="The plan has them at a place that is not found again.",
                    fix="leave them out, or read the text in a query of its own",
                )


def _refuse_escape(expression: Any, location: SourceLocation) -> None:
    if expression.getClass().getSimpleName() == "Like" and expression.escapeChar() != "\\":
        raise UnsupportedQuery(
            f"LIKE with the escape character {expression.escapeChar()!r}",
            where=[location],
            fix="escape by a backslash, which needs no ESCAPE",
        )


def _refuse(expression: Any, location: SourceLocation) -> NoReturn:
    raise UnsupportedQuery(
        f"the query uses {expression.toString()}, which has no incremental form yet",
        where=[location],
        why="It is null where it fails.",
        fix="test for what would fail, by CASE WHEN",
    )
