"""Nodes of a plan in its JSON, each paired with that of the JVM, which knows what the JSON omits.

Both are in prefix order, operators with their expressions, and a subquery's plan within the expression.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias, cast

from penstock.queries.catalyst_plan import is_tree
from penstock.queries.plan_details import items

Fields: TypeAlias = dict[str, Any]
Path: TypeAlias = tuple[Any, ...]
"""Nodes of the JVM, from the root of the plan to one of them."""


def paired_nodes(listed: list[Fields], plan: Any, above: Path = ()) -> Iterator[tuple[Fields, Path] | None]:
    """Yield the nodes in the JSON of a plan, each with its path in that of the JVM.

    None stands for what is in another order in the JSON, and is left out: all from an operator on, or the
    expressions of one.
    """
    operators = list(_prefix(plan, above))
    if len(operators) != len(listed):
        yield None
        return
    for fields, path in zip(listed, operators, strict=True):
        if not _is_same(fields, path):
            yield None
            return
        yield fields, path
        known = [node for value in fields.values() for node in _expression_nodes(value)]
        found = [each for root in items(path[-1].expressions()) for each in _prefix(root, path)]
        if len(known) != len(found) or not all(map(_is_same, known, found)):
            yield None
            continue
        for node, to_node in zip(known, found, strict=True):
            yield node, to_node
            if is_tree(node.get("plan")):
                yield from paired_nodes(node["plan"], to_node[-1].plan(), to_node)


def _prefix(tree: Any, above: Path) -> Iterator[Path]:
    path = (*above, tree)
    yield path
    for child in items(tree.children()):
        yield from _prefix(child, path)


def _is_same(node: Fields, path: Path) -> bool:
    return node["class"] == path[-1].getClass().getName()


def _expression_nodes(value: Any) -> Iterator[Fields]:
    """Yield the nodes of the expressions in a field of an operator, in order."""
    if is_tree(value):
        yield from (node for node in value if ".expressions." in value[0]["class"])
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _expression_nodes(item)
