"""Where rows are between shards, and where they have to be.

Rows are *spread* by expressions over their columns: rows for which these are
equal are on one shard. An operator that needs equal keys in one place is
content with any spread by columns that its keys determine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING, TypeAlias

from penstock.expr.tree import Call, Column, Expr, columns_of
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.bag_feedback import BagFeedback
from penstock.flow.operators.defer_tick import DeferTick
from penstock.flow.operators.defer_tick_lazy import DeferTickLazy
from penstock.flow.operators.difference import Difference
from penstock.flow.operators.distinct import Distinct
from penstock.flow.operators.distinct_on_time import DistinctOnTime
from penstock.flow.operators.feedback import Feedback
from penstock.flow.operators.filter import Filter
from penstock.flow.operators.first_within import FirstWithin
from penstock.flow.operators.join import How, Join
from penstock.flow.operators.join_on_time import JoinOnTime
from penstock.flow.operators.select import Select
from penstock.flow.operators.top_k import TopK
from penstock.flow.operators.union import Union
from penstock.flow.operators.window import Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from penstock.expr.types import Schema
    from penstock.graph.node import FlowGraph, Node, Operator


# --- routes: how rows get to shards ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class ByKey:
    """To the shard that the values of `keys` hash to."""

    keys: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"by {', '.join(map(str, self.keys))}"


@dataclass(frozen=True, slots=True)
class ByBucket:
    """To the shard that owns the row's bucket of a table."""

    columns: tuple[str, ...] | None
    buckets: int

    def __str__(self) -> str:
        return f"by bucket of {', '.join(self.columns) if self.columns else 'the row'}"


@dataclass(frozen=True, slots=True)
class ToOne:
    """All to the first shard."""

    def __str__(self) -> str:
        return "all to one"


@dataclass(frozen=True, slots=True)
class ToAll:
    """Each to every shard."""

    def __str__(self) -> str:
        return "to all"


Route: TypeAlias = ByKey | ByBucket | ToOne | ToAll


# --- spreads: where rows are ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """By what rows are spread: per position the expressions that have the same value there.

    positions: None means no order at all; empty means that all rows are on the first shard.
    """

    positions: tuple[tuple[Expr, ...], ...] | None = None

    @property
    def anyhow(self) -> bool:
        return self.positions is None

    @property
    def on_one(self) -> bool:
        return self.positions == ()

    def route(self) -> Route | None:
        """How further rows get to where equal ones are; None where nothing is known."""
        if self.positions is None:
            return None
        return ByKey(tuple(same[0] for same in self.positions)) if self.positions else ToOne()

    def determined_by(self, keys: Sequence[Expr]) -> bool:
        """Whether rows with equal `keys` are on one shard."""
        if self.positions is None:
            return False
        columns = {k.name for k in keys if isinstance(k, Column)}
        return all(any(_is_function(expr, keys, columns) for expr in same) for same in self.positions)

    def renamed(self, columns: Iterable[tuple[str, Expr]]) -> Spread:
        """The spread in terms of new columns; no order where they do not tell it any more."""
        if self.positions is None:
            return self
        pairs = tuple(columns)
        names = {expr.name: name for name, expr in reversed(pairs) if isinstance(expr, Column)}
        positions: list[tuple[Expr, ...]] = []
        for same in self.positions:
            new = [e for e in (_in_terms_of(expr, pairs, names) for expr in same) if e is not None]
            if not new:
                return ANYHOW
            positions.append(tuple(new))
        return Spread(tuple(positions))


ANYHOW = Spread()
ON_ONE = Spread(())


def by(*keys: Expr) -> Spread:
    return Spread(tuple((key,) for key in keys))


def _is_function(expr: Expr, keys: Sequence[Expr], columns: set[str]) -> bool:
    return columns.issuperset(columns_of(expr)) or any(expr.same(key) for key in keys)


def _in_terms_of(expr: Expr, pairs: Sequence[tuple[str, Expr]], names: dict[str, str]) -> Expr | None:
    for name, computed in pairs:
        if expr.same(computed):
            return Column(name)
    return with_names(expr, names) if names.keys() >= set(columns_of(expr)) else None


def with_names(expr: Expr, names: dict[str, str]) -> Expr:
    """The same tree over renamed columns."""
    if isinstance(expr, Column):
        return Column(names[expr.name])
    if isinstance(expr, Call):
        return replace(expr, arguments=tuple(with_names(a, names) for a in expr.arguments))
    return expr


# --- operators ----------------------------------------------------------------------------


Keys: TypeAlias = tuple[Expr, ...]


def own_keys(node: Node, graph: FlowGraph) -> tuple[Keys | None, ...] | None:
    """Per input the keys whose rows must meet, None for one that every shard needs whole.

    None as a whole where any row may be anywhere.
    """
    if isinstance(node.operator, DeferTick | DeferTickLazy):
        # What it keeps needs a home, which any shard can be.
        return (whole_row(graph.nodes[node.inputs[0]].schema),)
    if isinstance(node.operator, Feedback):
        # Of one that is cut by key: equal rows must meet.
        return (whole_row(node.schema),)
    if pairs_all(node.operator):
        # The right side of a cross join or a threshold is the small one.
        return (whole_row(graph.nodes[node.inputs[0]].schema), None)
    return node.operator.placement().keys


def pairs_all(operator: Operator) -> bool:
    """Whether each row of the left input needs all of the right one, and no other left row."""
    return isinstance(operator, Join) and not operator.left_keys


def whole_row(schema: Schema) -> tuple[Expr, ...]:
    return tuple(Column(name) for name in schema.names)


@singledispatch
def spread_after(operator: Operator, node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    """How the output is spread, given the inputs as they are where the operator runs.

    An operator that nobody speaks of here (an opaque function) keeps no order.
    """
    return ON_ONE if inputs and all(i.on_one for i in inputs) else ANYHOW


@spread_after.register(Filter)
@spread_after.register(Distinct)
@spread_after.register(Feedback)
@spread_after.register(BagFeedback)
@spread_after.register(TopK)
@spread_after.register(Difference)
@spread_after.register(DeferTick)
@spread_after.register(DeferTickLazy)
@spread_after.register(DistinctOnTime)
@spread_after.register(FirstWithin)
def _(operator: Operator, node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    return inputs[0]


@spread_after.register(Select)
def _(operator: Select, node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    return inputs[0].renamed(operator.columns)


@spread_after.register(Aggregate)
@spread_after.register(Window)
def _(operator: Aggregate | Window, node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    return inputs[0].renamed(operator.keys)


@spread_after.register(Union)
def _(operator: Union, node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    first, *others = (spread.positions for spread in inputs)
    same = first is not None and all(
        other is not None
        and len(other) == len(first)
        and all(any(x.same(y) for x in a for y in b) for a, b in zip(first, other, strict=True))
        for other in others
    )
    if not same or first is None:
        return ANYHOW
    return Spread(
        tuple(
            tuple(x for x in a if all(any(x.same(y) for y in o[at]) for o in others if o is not None))
            for at, a in enumerate(first)
        )
    )


@spread_after.register(Join)
def _(operator: Join, node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    left, right = inputs[:2]
    if left.positions is None or right.positions is None or operator.how is not How.INNER:
        return left
    names = _right_names(operator, node, graph)
    assert len(left.positions) == len(right.positions)
    positions: list[tuple[Expr, ...]] = []
    for a, b in zip(left.positions, right.positions, strict=True):
        kept = [with_names(e, names) for e in b if names.keys() >= set(columns_of(e))]
        positions.append((*a, *kept))
    return Spread(tuple(positions))


@spread_after.register(JoinOnTime)
def _(operator: JoinOnTime, node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    return spread_after(operator.join, node, graph, inputs)


def _right_names(operator: Join, node: Node, graph: FlowGraph) -> dict[str, str]:
    """Names that right columns have in the output; those left out are left keys of the same name."""
    left, right = (graph.nodes[i].schema.names for i in node.inputs[:2])
    names = {name: name for name in right if name in left}
    for at, position in enumerate(operator.kept_right):
        names[right[position]] = node.schema.names[len(left) + at]
    return names


# --- joins of two spreads ------------------------------------------------------------------


def matching_keys(spread: Spread, keys: Sequence[Expr]) -> list[set[int]] | None:
    """Per position of the spread the numbers of the keys that are equal to it; None if one has none."""
    if spread.positions is None:
        return None
    found = [
        {at for at, key in enumerate(keys) if any(key.same(e) for e in same)} for same in spread.positions
    ]
    return found if all(found) else None


def common(one: list[set[int]] | None, other: list[set[int]] | None) -> list[int] | None:
    """Key numbers by which both inputs are spread alike; None if they are not."""
    if one is None or other is None or len(one) != len(other):
        return None
    both = [a & b for a, b in zip(one, other, strict=True)]
    return [min(b) for b in both] if all(both) else None
