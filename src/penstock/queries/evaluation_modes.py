"""Functions that the JSON of a plan does not tell whole: those that are null where they fail, and others.

Catalyst's class of `try_add` is that of `+`, and neither the JSON of a plan nor its text tells them apart. So
the expressions of `try_add` are found in the plan of the JVM, and get a class of their own. LIKE gets its
escape character, and `from_json` its options, which the JSON omits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

from penstock.errors import Step, UnsupportedQuery
from penstock.queries.catalyst_plan import ESCAPE, KIND, OPTIONS, simple_name
from penstock.queries.plan_details import expressions, items
from penstock.queries.plan_pairs import Path, paired_nodes

_TRIED = ("Add", "Subtract", "Multiply", "Divide", "Remainder", "Cast", "Sum", "Average")

_FROM_JSON = "JsonToStructs"

_MODES = ("evalMode", "evalContext")
"""Fields of an expression that treats errors in several ways."""


Where: TypeAlias = Callable[[Path], Sequence[Step]]
"""Where a node of the JVM stands, as an error shows it."""


def tell_apart(listed: list[Any], plan: Any, where: Where) -> None:
    """Rename `Add` to `TryAdd`, and so on, in the JSON of a plan, and add the escape characters of LIKE.

    Raises `UnsupportedQuery` for other functions that are null where they fail.
    """
    pairs = list(paired_nodes(listed, plan))
    if None in pairs:
        _refuse_any(plan, where)
        return
    for node, path in (pair for pair in pairs if pair is not None):
        expression = path[-1]
        if _is_like(expression):
            node[ESCAPE] = expression.escapeChar()
        if simple_name(node["class"]) == _FROM_JSON:
            node[OPTIONS] = _options(expression)
        if not any(mode in node for mode in _MODES) or _mode(expression) != "TRY":
            continue
        kind = simple_name(node["class"])
        if kind not in _TRIED:
            _refuse(path, where)
        node[KIND] = f"Try{kind}"


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


def _refuse_any(plan: Any, where: Where) -> None:
    """Refuse a plan whose JSON is in another order, if it has a function that the JSON does not tell."""
    for each in (plan, *items(plan.subqueriesAll())):
        for expression in expressions(each):
            if _is_like(expression) and expression.escapeChar() != "\\":
                raise UnsupportedQuery(
                    f"LIKE with the escape character {expression.escapeChar()!r}",
                    where=where((expression,)),
                    fix="escape by a backslash, which needs no ESCAPE",
                )
            if _mode(expression) == "TRY":
                _refuse((expression,), where)
            if expression.getClass().getSimpleName() == _FROM_JSON and _options(expression):
                raise UnsupportedQuery(
                    "from_json with options in this query",
                    where=where((expression,)),
                    why="The plan has them at a place that is not found again.",
                    fix="leave them out, or read the text in a query of its own",
                )


def _is_like(expression: Any) -> bool:
    return expression.getClass().getSimpleName() == "Like"


def _refuse(path: Path, where: Where) -> NoReturn:
    raise UnsupportedQuery(
        f"the query uses {path[-1].toString()}, which has no incremental form yet",
        where=where(path),
        why="It is null where it fails.",
        fix="test for what would fail, by CASE WHEN",
    )
