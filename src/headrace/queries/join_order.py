"""Order of inner joins.

Without statistics, Catalyst joins relations in the order in which a query names them. State is kept of each
intermediate result, so that it pays to join a relation early that a filter makes small: one with a constant
in a column joins its only neighbour first. The result counts as one small relation, and so on.
All else stays in Catalyst's order. A semi- or anti-join whose condition is more than equalities looks at
pairs of rows; it comes after the joins, which leave fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headrace.queries.catalyst_plan import CatalystNode, attributes_of, conjuncts
from headrace.queries.relations import exists_column, join_type


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """Relations that are all joined, in Catalyst's order.

    pair_tests: semi- and anti-joins that come after.
    """

    leaves: list[CatalystNode] = field(default_factory=list[CatalystNode])
    conditions: list[CatalystNode] = field(default_factory=list[CatalystNode])
    pair_tests: list[CatalystNode] = field(default_factory=list[CatalystNode])


@dataclass(frozen=True, slots=True)
class Joined:
    """Two sides of a join, each a relation or a join."""

    left: Joined | CatalystNode
    right: Joined | CatalystNode


@dataclass(frozen=True, slots=True)
class _Part:
    """Relations that are joined already. place: of the first among all. weight: of the filters."""

    tree: Joined | CatalystNode
    attributes: frozenset[int]
    place: int
    weight: int
    leaves: int


def join_graph(node: CatalystNode) -> JoinGraph | None:
    """Return the relations under nested inner joins; None if Catalyst's order is as good."""
    graph = JoinGraph()
    _collect(node, graph)
    several = len(graph.leaves) > 2 and any(map(_weight, graph.leaves))
    return graph if several or (len(graph.leaves) > 1 and graph.pair_tests) else None


def _collect(node: CatalystNode, graph: JoinGraph) -> None:
    below = node
    while below.kind == "Project" and all(e.kind == "AttributeReference" for e in below.trees("projectList")):
        below = below.children[0]
    condition = below.tree("condition") if below.kind == "Join" else None
    parts = [] if condition is None else list(conjuncts(condition))
    if below.kind != "Join" or exists_column(below) is not None or not all(map(_cannot_fail, parts)):
        graph.leaves.append(node)
    elif join_type(below) in ("Inner", "Cross"):
        for child in below.children:
            _collect(child, graph)
        graph.conditions.extend(parts)
    elif join_type(below) in ("LeftSemi", "LeftAnti") and not all(part.kind == "EqualTo" for part in parts):
        _collect(below.children[0], graph)
        graph.pair_tests.append(below)
    else:
        graph.leaves.append(node)


_COMPARISONS = {
    "EqualTo",
    "EqualNullSafe",
    "LessThan",
    "LessThanOrEqual",
    "GreaterThan",
    "GreaterThanOrEqual",
}
_PLAIN = _COMPARISONS | {"AttributeReference", "Literal", "And", "Or", "Not", "IsNull", "IsNotNull"}


def _cannot_fail(condition: CatalystNode) -> bool:
    """Return whether a condition is safe to evaluate on any row."""
    return all(node.kind in _PLAIN for node in condition.walk())


def in_order(graph: JoinGraph, outputs: Sequence[frozenset[int]]) -> Joined | CatalystNode:
    """Return the order of the joins. outputs: the attributes of each relation."""
    parts = [
        _Part(leaf, own, place, _weight(leaf), 1)
        for place, (leaf, own) in enumerate(zip(graph.leaves, outputs, strict=True))
    ]
    while len(parts) > 1 and (found := list(_selective_parts(parts, graph.conditions))):
        small, neighbour = max(found, key=lambda pair: (pair[0].weight, pair[0].leaves, pair[0].place))
        parts = [part for part in parts if part is not small and part is not neighbour]
        parts.append(_together(neighbour, small))
    parts.sort(key=lambda part: part.place)
    whole = parts.pop(0)
    while parts:
        after = next((part for part in parts if _meet(whole, part, graph.conditions)), parts[0])
        parts.remove(after)
        whole = _together(whole, after)
    return whole.tree


def _together(one: _Part, other: _Part) -> _Part:
    attributes, place = one.attributes | other.attributes, min(one.place, other.place)
    weight, leaves = max(one.weight, other.weight), one.leaves + other.leaves
    return _Part(Joined(one.tree, other.tree), attributes, place, weight, leaves)


def _selective_parts(
    parts: Sequence[_Part], conditions: Sequence[CatalystNode]
) -> Iterator[tuple[_Part, _Part]]:
    """Yield each filtered part that joins exactly one other part, with that part."""
    for part in parts:
        met = [other for other in parts if other is not part and _meet(part, other, conditions)]
        if part.weight and len(met) == 1:
            yield part, met[0]


def _meet(one: _Part, other: _Part, conditions: Sequence[CatalystNode]) -> bool:
    """Return whether a column of one part is to equal one of another."""
    for condition in conditions:
        if condition.kind == "EqualTo":
            mine, theirs = map(attributes_of, condition.children)
            if not mine or not theirs:
                continue
            if (mine <= one.attributes and theirs <= other.attributes) or (
                mine <= other.attributes and theirs <= one.attributes
            ):
                return True
    return False


def _weight(node: CatalystNode) -> int:
    """Return how many conditions of a relation are likely to leave few rows."""
    weight = 0
    while node.kind in ("Project", "Filter", "SubqueryAlias"):
        if node.kind == "Filter" and (condition := node.tree("condition")) is not None:
            weight += sum(map(_is_selective, conjuncts(condition)))
        node = node.children[0]
    return weight


def _is_selective(condition: CatalystNode) -> bool:
    match condition.kind:
        case "EqualTo":
            return any(child.kind == "Literal" for child in condition.children)
        case "Or":
            return all(map(_is_selective, condition.children))
        case "And":
            return any(map(_is_selective, condition.children))
        case kind:
            return kind in ("In", "InSet", "StartsWith", "EndsWith", "Contains", "Like")
