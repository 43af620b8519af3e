"""Functions of a plan that its JSON does not tell apart: those that are null where they fail, and LIKE.

Catalyst's class of `try_add` is that of `+`, and neither the JSON of a plan nor its text tells them apart. So
the expressions of `try_add` are found in the plan of the JVM, and get a class of their own. LIKE with an
escape character of its own is refused.
"""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.errors import SourceLocation, UnsupportedQuery
from penstock.queries.catalyst_plan import simple_name
from penstock.queries.plan_details import expressions, items
from penstock.queries.plan_pairs import paired_nodes

_TRIED = ("Add", "Subtract", "Multiply", "Divide", "Remainder", "Cast")

_MODES = ("evalMode", "evalContext")
"""Fields of an expression that treats errors in several ways."""


def tell_apart(listed: list[Any], plan: Any, location: SourceLocation) -> None:
    """Rename `Add` to `TryAdd`, and so on, in the JSON of a plan.

    Raises `UnsupportedQuery` for other functions that are null where they fail, and for LIKE with ESCAPE.
    """
    pairs = list(paired_nodes(listed, plan))
    if None in pairs:
        _refuse_any(plan, location)
        return
    for node, (*_, expression) in (pair for pair in pairs if pair is not None):
        _refuse_escape(expression, location)
        if not any(mode in node for mode in _MODES) or _mode(expression) != "TRY":
            continue
        kind = simple_name(node["class"])
        if kind not in _TRIED:
            _refuse(expression, location)
        node["class"] = f"Try{kind}"


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
