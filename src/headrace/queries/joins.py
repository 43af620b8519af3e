"""Lowering of Catalyst's joins, and the order of inner joins.

Without statistics, Catalyst joins relations in the order in which a query names them. State is kept of each
intermediate result, so that it pays to join a relation early that a filter makes small: one with a constant
in a column joins its only neighbour first. The result counts as one small relation, and so on.
All else stays in Catalyst's order. A semi- or anti-join whose condition is more than equalities looks at
pairs of rows; it comes after the joins, which leave fewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import and_
from typing import Any

from headrace.errors import UnsupportedQuery
from headrace.expr.check import check
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.flow.state_expiry import timed_columns
from headrace.operators.aggregate import counts, extremes
from headrace.queries.catalyst_plan import CatalystNode, attributes_of, conjuncts, same_expression
from headrace.queries.expressions import Scope, zero_of
from headrace.queries.relations import (
    Planner,
    Relation,
    RowStream,
    exists_column,
    filtered,
    join_type,
    lowers,
    output_of,
)


@dataclass(frozen=True, slots=True)
class JoinGraph:
    """Inner-joined relations, in Catalyst's order.

    pair_tests: semi- and anti-joins applied afterwards.
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
    """Relations already joined. place: position of the first one. weight: number of selective filters."""

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
    """Choose the join order. outputs: the attributes of each relation."""
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
    """Return whether a condition equates a column of one part with a column of another."""
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
    """Return the number of conditions on a relation that are likely to leave few rows."""
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


@lowers("Join")
def _join(node: CatalystNode, planner: Planner) -> Relation:
    graph = join_graph(node)
    if graph is not None and (relations := _free_relations(graph, planner)) is not None:
        return _joined_in_order(graph, relations, node, planner)
    left, right = map(planner.relation, node.children)
    right = _disjoint(right, left, planner)
    kind, condition = join_type(node), node.tree("condition")
    parts = [] if condition is None else list(conjuncts(condition))
    later = [part for part in parts if any(each.kind == "ScalarSubquery" for each in part.walk())]
    if later and kind != "Inner":
        raise UnsupportedQuery(
            "a subquery in the condition of an outer join",
            fix="put its value into a column of one side, or compare in WHERE",
        )
    if later:
        plain = [part for part in parts if part not in later]
        return filtered(_joined(left, right, kind, plain), later, planner)
    if kind == "LeftSingle":
        return _joined_single(left, right, parts)
    if kind == "RightOuter":
        swapped = _joined(right, left, "LeftOuter", parts)
        return Relation(swapped.stream, {**left.columns, **right.columns})
    exists = exists_column(node)
    if exists is not None:
        name = planner.name(exists.expr_id, exists.fields["name"])
        found, missed = (_joined(left, right, each, parts) for each in ("LeftSemi", "LeftAnti"))
        stream = found.stream.with_columns(**{name: Literal(True)})
        either = stream.union(missed.stream.with_columns(**{name: Literal(False)}))
        return Relation(either, {**left.columns, exists.expr_id: name})
    return _joined(left, right, kind, parts)


def _free_relations(graph: JoinGraph, planner: Planner) -> dict[int, Relation] | None:
    """Return the relations of a graph by the identity of their nodes; None if their order must not change.

    A join on event time forgets rows by the watermarks of both sides, which another join would hide.
    """
    relations = {id(leaf): planner.relation(leaf) for leaf in graph.leaves}
    ids = [expr_id for relation in relations.values() for expr_id in relation.columns]
    ids += [expr_id for test in graph.pair_tests for expr_id in output_of(test.children[1])]
    timed = any(timed_columns(relation.stream) for relation in relations.values())
    return None if timed or len(set(ids)) < len(ids) else relations


def _joined_in_order(
    graph: JoinGraph, relations: Mapping[int, Relation], node: CatalystNode, planner: Planner
) -> Relation:
    """Join relations in the order chosen by `in_order`. node: the node that defines the output."""
    pending = list(graph.conditions)
    conditions = [test.tree("condition") for test in graph.pair_tests]
    tests = [[] if condition is None else list(conjuncts(condition)) for condition in conditions]
    wanted = set(output_of(node)).union(*(attributes_of(part) for parts in tests for part in parts))

    def kept(relation: Relation) -> Relation:
        needed = wanted.union(*map(attributes_of, pending))
        return _selected(relation.stream, {i: name for i, name in relation.columns.items() if i in needed})

    def joined(tree: Joined | CatalystNode) -> Relation:
        if isinstance(tree, CatalystNode):
            return kept(relations[id(tree)])
        left, right = joined(tree.left), joined(tree.right)
        right = _disjoint(right, left, planner)
        parts = [part for part in pending if attributes_of(part) <= {*left.columns, *right.columns}]
        pending[:] = [part for part in pending if part not in parts]
        return kept(_joined(left, right, "Inner", parts))

    whole = joined(in_order(graph, [frozenset(r.columns) for r in relations.values()]))
    for test, parts in zip(graph.pair_tests, tests, strict=True):
        other = _disjoint(planner.relation(test.children[1]), whole, planner)
        whole = _joined(whole, other, join_type(test), parts)
    return _selected(whole.stream, {i: whole.columns[i] for i in output_of(node)})


def _disjoint(right: Relation, left: Relation, planner: Planner) -> Relation:
    """Rename the columns of the right side whose names the left side also uses."""
    taken = set(left.columns.values()) | set(left.stream.schema.names)
    if not taken & {*right.columns.values(), *right.stream.schema.names}:
        return right
    planner.taken.update(taken)
    renamed: dict[int, str] = {}
    for expr_id, name in right.columns.items():
        mine = planner.names.get(expr_id, name)
        renamed[expr_id] = mine if mine not in taken else planner.fresh(name)
    columns = {renamed[expr_id]: Column(name) for expr_id, name in right.columns.items()}
    return Relation(right.stream.select(**(columns or {planner.fresh("row"): Literal(1)})), renamed)


_HOW = {
    "Inner": "inner",
    "Cross": "inner",
    "LeftOuter": "left",
    "FullOuter": "full",
    "LeftSemi": "semi",
    "LeftAnti": "anti",
}


def _joined(left: Relation, right: Relation, kind: str, parts: Sequence[CatalystNode]) -> Relation:
    columns = {**left.columns, **right.columns}
    kept = left.columns if kind in ("LeftSemi", "LeftAnti") else columns
    if kind not in _HOW:
        raise UnsupportedQuery(f"the query plans to a join of type {kind}, which has no incremental form yet")
    if kind == "LeftAnti" and len(parts) == 1 and (equal := _not_in(parts[0])) is not None:
        return _joined_not_in(left, right, equal)
    keys = [_key(part, left, right) for part in parts]
    scope = Scope(
        {i: Column(name, "left") for i, name in left.columns.items()}
        | {i: Column(name, "right") for i, name in right.columns.items()}
    )
    if any(key is not None for key in keys):
        tests = (scope.lower(part) if key is None else key for part, key in zip(parts, keys, strict=True))
        return _selected(_on(left.stream, right.stream, reduce(and_, tests), kind), kept)
    if _HOW[kind] == "inner":
        product = left.stream.cross_join(right.stream)
        plain = Scope({i: Column(name) for i, name in columns.items()})
        passing = product.filter(reduce(and_, map(plain.lower, parts))) if parts else product
        return Relation(passing, kept)
    # Every row may meet every other: a key that all have.
    one, other = (
        r.stream.with_columns(**{key: Literal(1)}) for r, key in ((left, "left one"), (right, "right one"))
    )
    same = FunctionCall("eq", (Column("left one", "left"), Column("right one", "right")))
    on = reduce(and_, map(scope.lower, parts), same)
    return _selected(_on(one, other, on, kind), kept)


def _not_in(condition: CatalystNode) -> CatalystNode | None:
    """Return the equality in the condition of a NOT IN, which also holds if the equality is null."""
    if condition.kind != "Or":
        return None
    equal, unknown = condition.children
    if equal.kind != "EqualTo" or unknown.kind != "IsNull":
        return None
    return equal if same_expression(unknown.children[0], equal) else None


def _joined_not_in(left: Relation, right: Relation, equal: CatalystNode) -> Relation:
    """Keep the rows that satisfy NOT IN. A null on either side matches, unless the right side is empty."""
    one, other = equal.children
    if attributes_of(one) - left.columns.keys():
        one, other = other, one
    mine, theirs = left.scope.lower(one), right.scope.lower(other)
    known = Relation(left.stream.filter(mine.is_not_null()), left.columns)
    unknown = Relation(left.stream.filter(mine.is_null()), left.columns)
    nulls = Relation(right.stream.filter(theirs.is_null()), right.columns)
    apart = _joined(_joined(known, right, "LeftAnti", [equal]), nulls, "LeftAnti", [])
    return Relation(apart.stream.union(_joined(unknown, right, "LeftAnti", []).stream), left.columns)


def _joined_single(left: Relation, right: Relation, parts: Sequence[CatalystNode]) -> Relation:
    """Join each row with a correlated subquery's row for it, or nulls; a second row fails the tick."""
    keys = [_equal_attribute(part, left, right) for part in parts]
    if None in keys:
        raise UnsupportedQuery(
            "a subquery of one value that is correlated by more than columns that equal something",
            fix="aggregate in it: SELECT max(...)",
        )
    by = {name: name for i, name in right.columns.items() if i in keys}
    values = [name for name in right.columns.values() if name not in by]
    rows = "right rows"
    found = right.stream.group_by(*by).agg(
        **{name: extremes.min(Column(name)) for name in values}, **{rows: counts.count()}
    )
    joined = _joined(left, Relation(found, {**right.columns, _ROWS: rows}), "LeftOuter", parts)
    many = FunctionCall("coalesce", (Column(rows), Literal(0)))
    only = {name: FunctionCall("only_row", (Column(name), many)) for name in values}
    columns = {**left.columns, **right.columns}
    return _selected(joined.stream.with_columns(**only), columns)


_ROWS = -1
"""Id of no attribute."""


def _equal_attribute(part: CatalystNode, left: Relation, right: Relation) -> int | None:
    """Return the id of the right side's attribute that a condition equates with the left; None if none."""
    if _key(part, left, right) is None:
        return None
    theirs = [
        each for each in part.children if each.kind == "AttributeReference" and each.expr_id in right.columns
    ]
    return theirs[0].expr_id if theirs else None


def _on(left: RowStream, right: RowStream, on: Expr, kind: str) -> RowStream:
    how: Any = _HOW[kind]
    return left.join(right, on=on, how=how)


def _selected(stream: RowStream, columns: Mapping[int, str]) -> Relation:
    if columns and tuple(columns.values()) != stream.schema.names:
        stream = stream.select(*columns.values())
    return Relation(stream, columns)


def _key(part: CatalystNode, left: Relation, right: Relation) -> Expr | None:
    """Return a condition as equalities between the two sides; None if it has another form."""
    if part.kind not in ("EqualTo", "EqualNullSafe"):
        return None
    one, other = part.children
    if attributes_of(one) <= right.columns.keys() and attributes_of(other) <= left.columns.keys():
        one, other = other, one
    mine, theirs = attributes_of(one), attributes_of(other)
    if not mine or not theirs or not mine <= left.columns.keys() or not theirs <= right.columns.keys():
        return None
    sides = [
        Scope({i: Column(name, side) for i, name in relation.columns.items()}).lower(expr)
        for side, relation, expr in (("left", left, one), ("right", right, other))
    ]
    if part.kind == "EqualTo":
        return FunctionCall("eq", tuple(sides))
    # Null equals null: whether it is null is a key, and so is the value, with another one for null.
    zero = zero_of(check(left.scope.lower(one), left.stream.schema).type)
    if zero is None:
        return None
    nulls = FunctionCall("eq", (sides[0].is_null(), sides[1].is_null()))
    return nulls & FunctionCall("eq", tuple(FunctionCall("coalesce", (side, zero)) for side in sides))
