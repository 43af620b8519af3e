"""Lowering of operators that multiply rows: generators, and recursive common table expressions.

Spark computes the recursive part of the rows of the last round alone, until a round has none. Where the part
maps sets of rows one by one, all rounds together make the same: the loop needs to know no rounds. Where rows
of one round meet each other (a join with itself, DISTINCT), or a LIMIT ends the loop, the number of its round
is a column of each row, which the part hands on: its plan is extended by that attribute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, TypeAlias, cast

from headrace.errors import UnsupportedQuery
from headrace.expr.check import check
from headrace.expr.tree import Column, Expr, FunctionCall, Literal
from headrace.expr.types import INT32, INT64, MapType, Schema
from headrace.queries.catalyst_plan import CatalystNode
from headrace.queries.expressions import typed_constant
from headrace.queries.relations import Planner, Relation, RowStream, join_type, lowers, output_of, united

Tree: TypeAlias = list[dict[str, Any]]
"""Expression in the JSON of a plan."""


@lowers("UnionLoop")
def _union_loop(node: CatalystNode, planner: Planner) -> Relation:
    """Lower a recursion. It keeps duplicates, so one of its conditions or a limit must end it."""
    anchor, part = node.children
    loop = _Loop(node.fields["id"], planner)
    numbered, attribute = loop.numbered(part)
    limit: int | None = node.fields.get("limit")
    seed = planner.in_order(anchor)
    columns = dict(zip(output_of(node), seed.columns.values(), strict=True))
    names = tuple(columns.values())
    first = seed.stream.select(*names)
    if attribute is None:  # a part that does not read the loop: a round of it would follow another for ever
        raise _refusal("whose second part does not read it")
    depth = node.fields.get("maxDepth")
    most = {} if depth is None or depth < 0 else {"max_iterations": depth}
    if limit is not None and loop.branches and not loop.may_end:
        raise _refusal(
            "without end that makes several rows of one", fix="count its rounds, and end it: WHERE n < 10"
        )
    if limit is None and loop.is_linear:
        found = planner.flow.changing_feedback(_nullable(first.schema), distinct=False, **most)
        planner.loops[loop.id] = Relation(found, dict(enumerate(names)))
        more = planner.in_order(part)
        whole = first.union(more.stream.select(**_like(names, more)))
        found.close(whole)
        return Relation(whole, columns)
    number = planner.fresh("round")
    first = first.with_columns(**{number: Literal(0, INT64)})
    found = planner.flow.changing_feedback(_nullable(first.schema), distinct=False, **most)
    planner.loops[loop.id] = Relation(found, dict(enumerate((*names, number))))
    relation = planner.relation(numbered)
    last = Column(relation.columns[_id(attribute)])
    rows = relation.stream
    if limit is not None:
        # As long as it goes on, each round has a row: further ones cannot be among the first.
        rows = rows.filter(last < limit - 1)
    listed = [relation.columns[each] for each in output_of(numbered) if each != _id(attribute)]
    following = {number: FunctionCall("when", (Literal(True), last + 1, Literal(None)))}
    more = rows.select(**_like(names, Relation(rows, dict(enumerate(listed)))), **following)
    whole = first.select(**{name: _or_null(Column(name)) for name in (*names, number)}).union(more)
    found.close(whole)
    return Relation(whole, columns)


def _nullable(schema: Schema) -> Schema:
    return Schema(tuple(replace(field, nullable=True) for field in schema.fields))


def _or_null(expr: Expr) -> Expr:
    return FunctionCall("when", (Literal(True), expr, Literal(None)))


def _like(names: Sequence[str], relation: Relation) -> Mapping[str, Expr]:
    """Return the columns of a relation under other names, as nullable columns."""
    return {name: _or_null(Column(own)) for name, own in zip(names, relation.columns.values(), strict=True)}


@lowers("UnionLoopRef")
def _loop_rows(node: CatalystNode, planner: Planner) -> Relation:
    loop, output = planner.loops[node.fields["loopId"]], output_of(node)
    return Relation(loop.stream, dict(zip(output, loop.columns.values(), strict=True)))


_READ = "read the recursion in FROM, with joins, filters, DISTINCT, and UNION ALL of parts that read it"


def _refusal(how: str, fix: str = _READ) -> UnsupportedQuery:
    return UnsupportedQuery(f"the query has a recursion {how}", fix=fix)


# -- rounds --------------------------------------------------------------------------------------

_HANDS_ON = frozenset(
    {"Filter", "SubqueryAlias", "Sort", "Repartition", "RepartitionByExpression", "ResolvedHint", "Generate"}
    | {"RebalancePartitions", "Distinct"}
)
"""Operators with the columns of their input."""

_MEETING = frozenset({"Distinct", "Aggregate"})
"""Operators in which rows of one round meet."""

_ids = count(1 << 40)  # beyond Spark's own


@dataclass(slots=True)
class _Loop:
    """Loop whose recursive part carries the round of each row.

    is_linear: whether no two rows of a round meet in what was extended.
    branches:  whether it may make several rows of one. may_end: whether it has a condition.
    """

    id: int
    planner: Planner
    is_linear: bool = True
    branches: bool = False
    may_end: bool = False

    def numbered(self, node: CatalystNode) -> tuple[CatalystNode, Tree | None]:
        """Return a plan that passes on the round, and its attribute; None if it does not read the loop.

        Raises `UnsupportedQuery` if rows have no round.
        """
        if node.kind == "UnionLoopRef" and node.fields["loopId"] == self.id:
            if node.fields.get("accumulated"):
                raise _refusal("that reads the rows of all rounds")
            number = _attribute("round", next(_ids))
            return _with(node, output=[*node.fields["output"], number]), number
        parts = [self.numbered(child) for child in node.children]
        numbers = [number for _, number in parts]
        found = [number for number in numbers if number is not None]
        if not found:
            return node, None
        below = replace(node, children=tuple(child for child, _ in parts))
        self.is_linear = self.is_linear and node.kind not in _MEETING
        self.branches = self.branches or node.kind in ("Join", "Generate", "Union")
        self.may_end = self.may_end or bool(node.fields.get("condition"))
        match node.kind:
            case "Project":
                return _with(below, projectList=[*node.fields["projectList"], found[0]]), found[0]
            case "Aggregate" if node.fields["groupingExpressions"] and not _aggregates(node):
                names = ("groupingExpressions", "aggregateExpressions")
                return _with(below, **{each: [*node.fields[each], found[0]] for each in names}), found[0]
            case "Union" if len(found) == len(parts):
                sides = [
                    self._projected(child, [each for each in output_of(child) if each != _id(number)], number)
                    for child, number in zip(below.children, found, strict=True)
                ]
                return replace(below, children=tuple(sides)), found[0]
            case "Join":
                return self._join(below, *numbers)
            case kind if kind in _HANDS_ON:
                return below, found[0]
            case kind:
                raise _refusal(f"through {kind}")

    def _join(
        self, node: CatalystNode, left: Tree | None, right: Tree | None
    ) -> tuple[CatalystNode, Tree | None]:
        kind = join_type(node)
        inner = kind in ("Inner", "Cross")
        of_left = kind in ("LeftSemi", "LeftAnti", "ExistenceJoin")
        if right is None and (inner or of_left or kind == "LeftOuter"):
            return node, left
        if left is None and (inner or kind == "RightOuter"):
            return node, right
        if left is None or right is None or not (inner or of_left):
            raise _refusal("whose rows are only looked up, by IN, EXISTS or an outer join")
        if kind == "LeftAnti":
            raise _refusal("that leaves out rows by its own, with EXCEPT, NOT EXISTS or NOT IN")
        if kind == "ExistenceJoin":
            raise _refusal("that looks for its own rows by EXISTS or IN, in a part of a condition")
        self.is_linear = False
        same: Tree = [{"class": "EqualTo", "num-children": 2}, *left, *right]
        given: Tree | None = node.fields.get("condition")
        condition = [{"class": "And", "num-children": 2}, *same, *given] if given else same
        joined = _with(node, condition=condition)
        if kind == "LeftSemi":
            return joined, left
        others = [each for each in output_of(joined) if each not in (_id(left), _id(right))]
        return self._projected(joined, others, left), left

    def _projected(self, node: CatalystNode, others: Sequence[int], number: Tree) -> CatalystNode:
        """Return the projection of an operator to some attributes followed by the round."""
        names = dict(zip(output_of(node), self.planner.output_names(node), strict=True))
        listed = [*(_attribute(names[each], each) for each in others), number]
        return CatalystNode("Project", {"projectList": listed}, (node,))


def _aggregates(node: CatalystNode) -> bool:
    """Return whether an Aggregate computes more than its grouping keys, as EXCEPT ALL does."""
    trees: list[Tree] = node.fields["aggregateExpressions"]
    return any(part["class"].endswith(".AggregateExpression") for tree in trees for part in tree)


def _attribute(name: str, expr_id: int) -> Tree:
    return [{"class": "AttributeReference", "num-children": 0, "name": name, "exprId": {"id": expr_id}}]


def _id(attribute: Tree) -> int:
    return cast("int", attribute[0]["exprId"]["id"])


def _with(node: CatalystNode, **fields: Any) -> CatalystNode:
    return replace(node, fields={**node.fields, **fields})


@lowers("Generate")
def _generate(node: CatalystNode, planner: Planner) -> Relation:
    generator = node.tree("generator")
    assert generator is not None
    below, outer = planner.relation(node.children[0]), bool(node.fields["outer"])
    made = {a.expr_id: planner.name(a.expr_id, a.fields["name"]) for a in node.trees("generatorOutput")}
    match generator.kind:
        case "Stack":
            rows = _stacked(generator, below, list(made.values()))
        case "Explode" | "PosExplode" | "Inline":
            rows = _exploded(generator, below, list(made.values()), planner, outer=outer)
        case "JsonTuple":
            rows = _json_fields(generator, below, list(made.values()), planner)
        case "ReplicateRows":
            rows = _replicated(generator, below, list(made.values()), planner)
        case kind:
            raise UnsupportedQuery(
                f"the query generates rows by {kind}, which has no incremental form yet", operator="Generate"
            )
    columns = {**below.columns, **made}
    return Relation(rows, {expr_id: columns[expr_id] for expr_id in output_of(node)})


def _stacked(generator: CatalystNode, below: Relation, columns: list[str]) -> RowStream:
    """Lower `stack(n, ...)`: n rows, each with as many of the values as there are columns."""
    count, *values = generator.children
    width = len(columns)
    first = below.stream.select(
        **dict(zip(columns, below.scope.lower_all(tuple(values[:width])), strict=True))
    )
    types = [field.type for field in first.schema.fields]
    branches: list[Relation] = []
    for at in range(int(count.fields["value"])):
        cells = below.scope.lower_all(tuple(values[at * width : (at + 1) * width]))
        missing = tuple(typed_constant(None, type) for type in types[len(cells) :])
        rows = below.stream.with_columns(**dict(zip(columns, (*cells, *missing), strict=True)))
        branches.append(Relation(rows, dict(enumerate(rows.schema.names))))
    return united(branches)


def _exploded(
    generator: CatalystNode, below: Relation, columns: list[str], planner: Planner, *, outer: bool
) -> RowStream:
    """Lower generators that emit a row per list element, or its fields. A map is a list of its entries."""
    values = below.scope.lower(generator.children[0])
    position = columns.pop(0) if generator.kind == "PosExplode" else None
    of_map = isinstance(check(values, below.stream.schema).type, MapType)
    if of_map:
        values = FunctionCall("map_entries", (values,))
    if not of_map and generator.kind != "Inline":
        (element,) = columns
        return below.stream.with_columns(**{element: values}).explode(element, position=position, outer=outer)
    element = planner.fresh("struct")
    listed = below.stream.with_columns(**{element: values})
    rows = listed.explode(element, position=position, outer=outer)
    struct: Any = rows.schema.fields[rows.schema.names.index(element)].type
    fields = {
        name: Column(element).field(field.name) for name, field in zip(columns, struct.fields, strict=True)
    }
    return rows.with_columns(**fields)


def _json_fields(generator: CatalystNode, below: Relation, columns: list[str], planner: Planner) -> RowStream:
    """Lower `json_tuple`: the row with fields of a JSON text as columns."""
    struct = planner.fresh("fields")
    found = FunctionCall("json_tuple", below.scope.lower_all(generator.children))
    fields = {name: Column(struct).field(f"c{at}") for at, name in enumerate(columns)}
    return below.stream.with_columns(**{struct: found}).with_columns(**fields)


def _replicated(generator: CatalystNode, below: Relation, columns: list[str], planner: Planner) -> RowStream:
    """Lower `ReplicateRows`: each row is copied as often as its first column says."""
    count, *values = below.scope.lower_all(generator.children)
    copies = planner.fresh("copies")
    named = dict(zip(columns, values, strict=True))
    times = FunctionCall("array_repeat", (Literal(1), FunctionCall("cast", (count,), (INT32,))))
    return below.stream.with_columns(**named, **{copies: times}).explode(copies)
