"""Nodes of a plan in its JSON, each with that of the JVM, which knows what the JSON omits.

Both are in prefix order: operators with their expressions, and the plan of a subquery within its expression.
The JVM is asked for a node, and those around it, only when somebody looks at it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from headrace.queries.catalyst_plan import is_tree, simple_name

Fields: TypeAlias = dict[str, Any]


class UnpairedNode(Exception):
    """A plan of the JVM is in another order than its JSON."""


@dataclass(slots=True)
class PlanNode:
    """Node of a plan. fields: in the JSON. above: the node around it."""

    fields: Fields
    above: PlanNode | None
    _fetch: Callable[[], Any]
    _tree: Any = None

    @property
    def kind(self) -> str:
        return simple_name(self.fields["class"])

    @property
    def tree(self) -> Any:
        """The node of the JVM. Raises `UnpairedNode`."""
        if self._tree is None:
            tree = self._fetch()
            if tree.getClass().getName() != self.fields["class"]:
                raise UnpairedNode(f"{tree.nodeName()} is where the JSON has {self.kind}")
            self._tree = tree
        return self._tree

    def outwards(self) -> Iterator[PlanNode]:
        """Yield the node and those around it."""
        node: PlanNode | None = self
        while node is not None:
            yield node
            node = node.above


def plan_nodes(listed: list[Fields], plan: Any) -> Iterator[PlanNode]:
    """Yield all nodes in the JSON of a plan of the JVM.

    Fields that are added to a node before the next one is asked for are read as those of the JSON.
    """
    return _operators(iter(listed), None, lambda: plan)


def _operators(
    nodes: Iterator[Fields], above: PlanNode | None, fetch: Callable[[], Any]
) -> Iterator[PlanNode]:
    operator = PlanNode(next(nodes), above, fetch)
    yield operator
    trees = [tree for value in operator.fields.values() for tree in _expression_trees(value)]
    for at, tree in enumerate(trees):
        yield from _expressions(iter(tree), operator, lambda at=at: _expression(operator, at, len(trees)))
    for at in range(operator.fields["num-children"]):
        yield from _operators(nodes, operator, lambda at=at: _child(operator, at))


def _expressions(nodes: Iterator[Fields], above: PlanNode, fetch: Callable[[], Any]) -> Iterator[PlanNode]:
    expression = PlanNode(next(nodes), above, fetch)
    yield expression
    subquery = expression.fields.get("plan")
    if is_tree(subquery):
        yield from _operators(
            iter(cast("list[Fields]", subquery)), expression, lambda: expression.tree.plan()
        )
    for at in range(expression.fields["num-children"]):
        yield from _expressions(nodes, expression, lambda at=at: _child(expression, at))


def _child(node: PlanNode, at: int) -> Any:
    children = node.tree.children()
    if children.size() != node.fields["num-children"]:
        raise UnpairedNode(f"{node.kind} has {children.size()} children")
    return children.apply(at)


def _expression(operator: PlanNode, at: int, count: int) -> Any:
    found = operator.tree.expressions()
    if found.size() != count:
        raise UnpairedNode(f"{operator.kind} has {found.size()} expressions, and {count} in the JSON")
    return found.apply(at)


def _expression_trees(value: Any) -> Iterator[list[Fields]]:
    """Yield the expressions in a field of an operator, in order."""
    if is_tree(value):
        if ".expressions." in value[0]["class"]:
            yield value
    elif isinstance(value, list):
        for item in cast("list[Any]", value):
            yield from _expression_trees(item)
