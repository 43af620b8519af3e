"""Lowering of Catalyst's operators to streams of a flow."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import reduce
from operator import and_
from typing import Any, TypeAlias

from headrace.errors import SourceLocation, UnsupportedQuery
from headrace.expr.check import check
from headrace.expr.tree import Column, Expr, FunctionCall, Literal, Ordering
from headrace.expr.types import INT64, DataType, holds_maps
from headrace.expr.typing_rules import wider_type
from headrace.flow.flow import Flow
from headrace.flow.stream import Stream
from headrace.operators.aggregate import counts, extremes
from headrace.operators.endpoints import TICK_TIME
from headrace.operators.over.row_functions import row_number
from headrace.queries.catalyst_plan import (
    RANGE,
    ROWS,
    TABLE,
    UNREAD,
    Canonical,
    CatalystNode,
    conjuncts,
    parse_tree,
    parse_type,
    refusals_of,
    registrar,
    same_expression,
    simple_name,
)
from headrace.queries.expressions import Scope, orderings, typed_constant
from headrace.queries.plan_details import RELATIONS
from headrace.queries.planning import Comparison, comparisons_with_time

RowStream: TypeAlias = Stream[Any, Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Relation:
    """Rows of an operator. columns: column names by the ids of the attributes, in order.

    The stream may have further columns that belong to no attribute.
    """

    stream: RowStream
    columns: Mapping[int, str]

    @property
    def rows(self) -> RowStream:
        """The stream of only these columns; of a constant column if there are none."""
        # Attributes that are computed alike share a column.
        names = tuple(dict.fromkeys(self.columns.values()))
        if names == self.stream.schema.names:
            return self.stream
        return self.stream.select(*names) if names else self.stream.select(row=Literal(1))

    @property
    def scope(self) -> Scope:
        return Scope({expr_id: Column(name) for expr_id, name in self.columns.items()})


_NUMBERED = re.compile(r"^(_common_expr)_\d+$")


@dataclass(slots=True)
class Planner:
    """Lowering of one plan.

    inputs: the stream of each relation of the query, by its name.
    names:  the column name of each attribute, by its id; names differ between attributes of one plan.
    made:   relations so far with their attributes, by canonical form: what a query says twice runs once.
    loops:  the rows that each recursion has found, by its id.
    closes: whether groups over a watermark come once, when their time has passed, not with each change.
    step:   of the watermark then: the size of the query's windows, if it has some.
    """

    flow: Flow
    inputs: Mapping[str, RowStream]
    names: dict[int, str] = field(default_factory=dict[int, str])
    made: dict[Any, tuple[Relation, list[int]]] = field(default_factory=dict[Any, tuple[Relation, list[int]]])
    taken: set[str] = field(default_factory=set[str])
    loops: dict[int, Relation] = field(default_factory=dict[int, Relation])
    closes: bool = False
    step: timedelta | None = None

    def relation(self, node: CatalystNode) -> Relation:
        """Lower an operator and all below it. Raises `RefusedNode`."""
        form = Canonical().of(node)
        known = self.made.get(form)
        if known is None:
            relation = self._lowered(node)
            self.made[form] = relation, output_of(node)
            return relation
        relation, output = known
        names = (relation.columns[expr_id] for expr_id in output)
        return Relation(relation.stream, dict(zip(output_of(node), names, strict=True)))

    def in_order(self, node: CatalystNode) -> Relation:
        """Lower an operator to one column per output position, even if an attribute has several positions."""
        relation = self.relation(node)
        names = [relation.columns[expr_id] for expr_id in output_of(node)]
        if len(set(names)) == len(names):
            return Relation(relation.stream, dict(enumerate(names)))
        made = [self.fresh(name) if name in names[:at] else name for at, name in enumerate(names)]
        stream = relation.stream.select(**{new: Column(name) for new, name in zip(made, names, strict=True)})
        return Relation(stream, dict(enumerate(made)))

    def _lowered(self, node: CatalystNode) -> Relation:
        with refusals_of(node):
            lowering = _LOWERINGS.get(node.kind)
            if lowering is None:
                raise UnsupportedQuery(
                    f"the query plans to {node.kind}, which has no incremental form yet",
                    fix="" if node.children else "give what it makes as a table",
                    operator=node.kind,
                )
            return lowering(node, self)

    def name(self, expr_id: int, wanted: str) -> str:
        """Return the column name of an attribute."""
        if expr_id not in self.names:
            # Spark numbers its own columns anew in each session; a flow is the same from run to run.
            wanted = _NUMBERED.sub(r"\1", wanted)
            name, number = wanted, 1
            while name in self.taken or name in _RESERVED:
                number += 1
                name = f"{wanted}_{number}"
            self.taken.add(name)
            self.names[expr_id] = name
        return self.names[expr_id]

    def fresh(self, wanted: str) -> str:
        """Return a column name that no attribute has."""
        return self.name(-len(self.taken) - 1, wanted)

    def output_names(self, node: CatalystNode) -> list[str]:
        """Return the names that the query gives to an operator's attributes."""
        names = _names(node)
        return [names[expr_id] for expr_id in output_of(node)]

    def projected(self, relation: Relation, exprs: Sequence[CatalystNode], scope: Scope) -> Relation:
        """Compute named expressions over a relation."""
        named = {e.expr_id: self.name(e.expr_id, e.fields["name"]) for e in exprs}
        computed = {named[e.expr_id]: scope.lower(e) for e in exprs}
        if not computed:
            # Only how many rows there are is asked for.
            return Relation(relation.stream.select(**{self.fresh("row"): Literal(1)}), {})
        if [(name, str(expr)) for name, expr in computed.items()] == [
            (name, name) for name in relation.columns.values()
        ]:
            return Relation(relation.stream, named)
        return Relation(relation.stream.select(**computed), named)

    def with_subqueries(
        self, relation: Relation, exprs: Sequence[CatalystNode], known: Sequence[CatalystNode] = ()
    ) -> tuple[Relation, Scope]:
        """Add a column for each scalar subquery in expressions over a relation, except those in `known`."""
        scope, found = relation.scope, dict[int, Expr]()
        stream = relation.stream
        for node in (each for expr in exprs for each in _subqueries_in(expr, known)):
            if node.expr_id not in found:
                plan = node.tree("plan")
                assert plan is not None
                one = self.single_value(plan)
                name = self.fresh("subquery")
                found[node.expr_id] = Column(name)
                value = one.stream.select(**{name: Column(next(iter(one.columns.values())))})
                stream = stream.cross_join(value)
        return Relation(stream, relation.columns), Scope(scope.columns, (), found)

    def clock(self, time: CatalystNode) -> RowStream:
        """Return a stream of an expression of the current time."""
        subqueries = {node.expr_id: Column("value") for node in _subqueries_in(time, ())}
        return self.inputs[TICK_TIME].select(time=Scope({}, (), subqueries).lower(time))

    def single_value(self, plan: CatalystNode) -> Relation:
        """Lower the plan of a scalar subquery: one row, null if it is empty. Further rows fail the tick."""
        below, relation = plan, self.relation(plan)
        while below.kind == "Project":
            below = below.children[0]
        if below.kind == "Aggregate" and not below.fields["groupingExpressions"]:
            return relation
        ((expr_id, name),) = relation.columns.items()
        counted = relation.stream.group_by().agg(value=extremes.min(Column(name)), rows=counts.count())
        whole = self.one_row().join(counted.with_columns(one=Literal(1)), on="one", how="left")
        value = FunctionCall(
            "only_row", (Column("value"), FunctionCall("coalesce", (Column("rows"), Literal(0))))
        )
        return Relation(whole.select(**{name: value}), {expr_id: name})

    def constant_rows(
        self, names: Sequence[str], types: Sequence[DataType], rows: Sequence[tuple[Any, ...]]
    ) -> RowStream:
        """Return a stream of the query's constant rows, present from the first tick on."""
        if len(rows) > _MAX_CONSTANT_ROWS:
            raise UnsupportedQuery(f"the query holds {len(rows):,} rows itself", fix="give them as a table")
        made: list[Relation] = []
        for row in rows or [(None,) * len(names)]:
            values = zip(names, types, row, strict=True)
            constants = {name: typed_constant(value, type) for name, type, value in values}
            stream = self.one_row().select(**constants) if constants else self.one_row()
            made.append(Relation(stream, dict(enumerate(names))))
        whole = united(made)
        return whole if rows else whole.filter(Literal(False))

    def numbers(self, name: str, numbers: range) -> RowStream:
        """Return a stream of a column of numbers, present from the first tick on."""
        # The number of a larger range is none that `len` returns.
        count = max(0, -((numbers.start - numbers.stop) // numbers.step))
        if count > _MAX_NUMBERS:
            raise UnsupportedQuery(f"the query makes {count:,} rows itself", fix="give them as a table")
        if not numbers:
            return self.one_row().select(**{name: typed_constant(None, INT64)}).filter(Literal(False))
        ends = tuple(typed_constant(each, INT64) for each in (numbers[0], numbers[-1], numbers.step))
        return self.one_row().select(**{name: FunctionCall("sequence", ends)}).explode(name)

    def one_row(self) -> RowStream:
        """Return a stream of one row with one column, present from the first tick on."""
        return self.flow.initialize().select(one=Literal(1))


def _subqueries_in(expr: CatalystNode, known: Sequence[CatalystNode]) -> Iterator[CatalystNode]:
    if expr.kind == "ScalarSubquery":
        yield expr
    elif not any(same_expression(expr, each) for each in known):
        for child in expr.children:
            yield from _subqueries_in(child, known)


_MAX_CONSTANT_ROWS = 1_000
_MAX_NUMBERS = 1_000_000
_RESERVED = frozenset({"name", "window", "emit", "into", "lifetime", "nondet"})

RelationLowering: TypeAlias = Callable[[CatalystNode, Planner], Relation]
_LOWERINGS: dict[str, RelationLowering] = {}
lowers = registrar(_LOWERINGS)


# -- attributes of an operator ------------------------------------------------------------------

_OUTPUTS: dict[str, str] = {"Project": "projectList", "Aggregate": "aggregateExpressions"}
_APPENDED: dict[str, str] = {
    "Window": "windowExpressions",
    **dict.fromkeys(("ArrowEvalPython", "BatchEvalPython"), "resultAttrs"),
}
"""Operators that add columns to those of their input, with the names of these lists."""


def output_of(node: CatalystNode) -> list[int]:
    """Return the ids of an operator's attributes, in order."""
    if node.kind in _OUTPUTS:
        return [e.expr_id for e in node.trees(_OUTPUTS[node.kind])]
    if node.kind in _APPENDED:
        return output_of(node.children[0]) + [e.expr_id for e in node.trees(_APPENDED[node.kind])]
    if node.kind == "Generate":
        unread = node.fields[UNREAD]
        kept = [each for at, each in enumerate(output_of(node.children[0])) if at not in unread]
        return kept + [e.expr_id for e in node.trees("generatorOutput")]
    if "output" in node.fields:
        return [e.expr_id for e in node.trees("output")]
    if node.kind == "UnionLoop":
        return [each["id"] for each in node.fields["outputAttrIds"]]
    if node.kind == "Join":
        left, right = map(output_of, node.children)
        exists = exists_column(node)
        return left + right if _has_right_columns(node) else left + ([exists.expr_id] if exists else [])
    return output_of(node.children[0]) if node.children else []


def _names(node: CatalystNode) -> dict[int, str]:
    """Return the names of all attributes of an operator and those below it, by their ids."""
    names = {expr_id: name for child in node.children for expr_id, name in _names(child).items()}
    for listed in (*_OUTPUTS.values(), *sorted({*_APPENDED.values()}), "output", "generatorOutput"):
        if listed in node.fields:
            names.update((each.expr_id, each.fields["name"]) for each in node.trees(listed))
    if node.kind == "UnionLoop":
        anchor = (names[expr_id] for expr_id in output_of(node.children[0]))
        names.update(zip(output_of(node), anchor, strict=True))
    return names


def _has_right_columns(node: CatalystNode) -> bool:
    """Return whether a join outputs the columns of its right side."""
    return join_type(node) not in ("LeftSemi", "LeftAnti", "ExistenceJoin")


def join_type(node: CatalystNode) -> str:
    given = node.fields["joinType"]
    return simple_name(given.get("object") or given["product-class"])


def exists_column(node: CatalystNode) -> CatalystNode | None:
    """Return the attribute of an existence join that says whether a row has a match."""
    if join_type(node) != "ExistenceJoin":
        return None
    return parse_tree(node.fields["joinType"]["exists"])


# -- rows by row ------------------------------------------------------------------------------


@lowers(*RELATIONS)
def _table(node: CatalystNode, planner: Planner) -> Relation:
    attributes = node.trees("output")
    if TABLE in node.fields:
        stream = planner.inputs[node.fields[TABLE]]
        return Relation(stream, {a.expr_id: a.fields["name"] for a in attributes})
    columns = {a.expr_id: planner.name(a.expr_id, a.fields["name"]) for a in attributes}
    if RANGE in node.fields:
        (number,) = columns.values()
        return Relation(planner.numbers(number, range(*node.fields[RANGE])), columns)
    types = [parse_type(a.fields["dataType"]) for a in attributes]
    return Relation(planner.constant_rows(tuple(columns.values()), types, node.fields[ROWS]), columns)


@lowers("Project")
def _project(node: CatalystNode, planner: Planner) -> Relation:
    return _projection(node, planner.relation(node.children[0]), planner)


def _projection(node: CatalystNode, below: Relation, planner: Planner) -> Relation:
    exprs = node.trees("projectList")
    relation, scope = planner.with_subqueries(below, exprs)
    return planner.projected(relation, exprs, scope)


@lowers("Filter")
def _filter(node: CatalystNode, planner: Planner) -> Relation:
    condition = node.tree("condition")
    assert condition is not None
    return filtered(planner.relation(node.children[0]), list(conjuncts(condition)), planner)


def filtered(below: Relation, conditions: Sequence[CatalystNode], planner: Planner) -> Relation:
    """Keep the rows for which all conditions are true. Conditions on the time are applied last."""
    plain: list[CatalystNode] = []
    timed: list[Comparison] = []
    for condition in conditions:
        comparisons = comparisons_with_time(condition)
        timed += comparisons
        if not comparisons:
            plain.append(condition)
    stream = below.stream
    if plain:
        relation, scope = planner.with_subqueries(below, plain)
        stream = relation.stream.filter(reduce(and_, map(scope.lower, plain)))
        if relation.stream is not below.stream:
            stream = Relation(stream, below.columns).rows
    for time, presence, moment in timed:
        location = SourceLocation.of_caller()
        stream = stream.filter_by_clock(planner.clock(time), presence, below.scope.lower(moment), location)
    return Relation(stream, below.columns)


@lowers(
    "SubqueryAlias",
    "LocalLimit",
    "Sort",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "RebalancePartitions",
)
def _same_rows(node: CatalystNode, planner: Planner) -> Relation:
    # A bag has no order. A local limit that no global one is above only saves Spark work.
    return planner.relation(node.children[0])


@lowers("Union")
def _union(node: CatalystNode, planner: Planner) -> Relation:
    parts = [planner.in_order(child) for child in node.children]
    columns = dict(zip(output_of(node), parts[0].columns.values(), strict=True))
    return Relation(united(parts), columns)


def united(parts: Sequence[Relation]) -> RowStream:
    """Return the union of relations, with the names of the first. Types may differ in nested nullability."""
    first, *others = parts
    types: list[DataType] = [reduce(wider_type, each) for each in zip(*map(_types, parts), strict=True)]
    stream = first.rows if _types(first) == types else _renamed(first, first, types)
    return stream.union(*(_renamed(each, first, types) for each in others)) if others else stream


def _types(relation: Relation) -> list[DataType]:
    return [check(Column(name), relation.stream.schema).type for name in relation.columns.values()]


def _renamed(relation: Relation, like: Relation, types: list[DataType]) -> RowStream:
    """Return a relation's rows under the names of another one, converted to types."""
    if not types:
        return relation.rows
    columns = zip(like.columns.values(), relation.columns.values(), _types(relation), types, strict=True)
    return relation.stream.select(
        **{
            name: Column(own) if found == type else FunctionCall("cast", (Column(own),), (type,))
            for name, own, found, type in columns
        }
    )


@lowers("Sample")
def _sample(node: CatalystNode, planner: Planner) -> Relation:
    """Sample a table by the hash of its whole rows, regardless of the columns that the query reads."""
    below = node.children[0]
    if below.kind in ("Project", "Filter", "SubqueryAlias"):
        sampled = replace(node, children=below.children)
        return planner.relation(replace(below, children=(sampled,)))
    if below.children:
        raise UnsupportedQuery(
            f"the sample is one of the rows of {below.kind}",
            why="Rows of tables are sampled, by their hash.",
            fix="sample the tables that the rows are computed from",
        )
    relation = planner.relation(below)
    schema = relation.stream.schema
    hashed = [field.name for field in schema.fields if not holds_maps(field.type)]
    if not hashed:
        raise UnsupportedQuery("the sampled table has no column but maps", fix="give it a key")
    fraction = node.fields["upperBound"] - node.fields["lowerBound"]
    stream = relation.stream.sample_by_hash(fraction, by=hashed, seed=node.fields["seed"])
    return Relation(stream, relation.columns)


@lowers("Distinct")
def _distinct(node: CatalystNode, planner: Planner) -> Relation:
    below = planner.relation(node.children[0])
    return Relation(below.rows.distinct(), below.columns)


@lowers("Expand")
def _expand(node: CatalystNode, planner: Planner) -> Relation:
    below, output = planner.relation(node.children[0]), node.trees("output")
    columns = {a.expr_id: planner.name(a.expr_id, a.fields["name"]) for a in output}
    branches = [
        below.stream.select(
            **{
                name: below.scope.lower(parse_tree(e))
                for name, e in zip(columns.values(), exprs, strict=True)
            }
        )
        for exprs in node.fields["projections"]
    ]
    return Relation(united([Relation(branch, columns) for branch in branches]), columns)


@lowers("OneRowRelation")
def _nothing(node: CatalystNode, planner: Planner) -> Relation:
    return Relation(planner.one_row(), {})


# -- limits --------------------------------------------------------------------------------------


@lowers("GlobalLimit", "Offset")
def _limit(node: CatalystNode, planner: Planner) -> Relation:
    below, limit, offset = node, None, 0
    while below.kind in ("GlobalLimit", "LocalLimit", "Offset"):
        if below.kind == "GlobalLimit":
            limit = _number(below, "limitExpr")
        elif below.kind == "Offset":
            offset = _number(below, "offsetExpr")
        below = below.children[0]
    # A projection may drop the columns that the rows are sorted by.
    projects = below.kind == "Project" and below.children[0].kind == "Sort"
    rows = below.children[0] if projects else below
    relation = planner.relation(rows)
    sorts = rows.trees("order") if rows.kind == "Sort" else ()
    sorted_, scope = planner.with_subqueries(Relation(relation.rows, relation.columns), sorts)
    order, stream = list(orderings(sorts, scope.lower)), sorted_.stream
    if limit is not None:
        stream = stream.top_k(offset + limit, by=order)
    if offset:
        place = planner.fresh("place")
        # The order may be none: then the whole row is, in which place means as much.
        by = order or [Ordering(Column(name)) for name in stream.schema.names]
        number: Any = row_number().over(order_by=by)
        numbered = stream.with_columns(**{place: number})
        stream = numbered.filter(Column(place) > offset).select(*stream.schema.names)
    first = Relation(Relation(stream, relation.columns).rows, relation.columns)
    return _projection(below, first, planner) if projects else first


def _number(node: CatalystNode, name: str) -> int:
    expr = node.tree(name)
    assert expr is not None
    return int(expr.fields["value"])
