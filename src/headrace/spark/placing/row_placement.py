"""Distribution of rows over shards: the routes that send them, and the spreads that result.

Rows are *spread* by expressions over their columns: rows with equal values of these are on one shard. An
operator that needs equal keys together accepts any spread by columns that its keys determine.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

from headrace.expr.tree import Call, Column, Expr, columns_of
from headrace.graph.operator_declarations import EqualRows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.expr.types import Schema
    from headrace.graph.node import FlowGraph, Node


# --- routes: how rows get to shards ----------------------------------------------------


@dataclass(frozen=True, slots=True)
class ByKey:
    """Route to the shard given by the hash of `keys`."""

    keys: tuple[Expr, ...]

    def __str__(self) -> str:
        return f"by {', '.join(map(str, self.keys))}"


@dataclass(frozen=True, slots=True)
class ByBucket:
    """Route to the shard that owns the row's table bucket."""

    columns: tuple[str, ...] | None
    buckets: int

    def __str__(self) -> str:
        return f"by bucket of {', '.join(self.columns) if self.columns else 'the row'}"


@dataclass(frozen=True, slots=True)
class ToOne:
    """Route of all rows to the first shard."""

    def __str__(self) -> str:
        return "all to one"


@dataclass(frozen=True, slots=True)
class ToAll:
    """Route of each row to every shard."""

    def __str__(self) -> str:
        return "to all"


Route: TypeAlias = ByKey | ByBucket | ToOne | ToAll


# --- spreads: where rows are ------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Spread:
    """Distribution of rows over shards: per position, expressions of equal value that determine the shard.

    positions: None if nothing is known; empty if all rows are on the first shard.
    """

    positions: tuple[tuple[Expr, ...], ...] | None = None

    @property
    def anyhow(self) -> bool:
        return self.positions is None

    @property
    def on_one(self) -> bool:
        return self.positions == ()

    def route(self) -> Route | None:
        """Return the route that co-locates further rows with equal ones; None if the spread is unknown."""
        if self.positions is None:
            return None
        return ByKey(tuple(same[0] for same in self.positions)) if self.positions else ToOne()

    def determined_by(self, keys: Sequence[Expr]) -> bool:
        """Return whether rows with equal `keys` are on the same shard."""
        if self.positions is None:
            return False
        columns = {k.name for k in keys if isinstance(k, Column)}
        return all(any(_is_function(expr, keys, columns) for expr in same) for same in self.positions)

    def renamed(self, columns: Iterable[tuple[str, Expr]]) -> Spread:
        """Return the spread in terms of new columns; unknown if they no longer determine it."""
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


def spread_by(*keys: Expr) -> Spread:
    return Spread(tuple((key,) for key in keys))


def _is_function(expr: Expr, keys: Sequence[Expr], columns: set[str]) -> bool:
    return columns.issuperset(columns_of(expr)) or any(expr.same(key) for key in keys)


def _in_terms_of(expr: Expr, pairs: Sequence[tuple[str, Expr]], names: dict[str, str]) -> Expr | None:
    for name, computed in pairs:
        if expr.same(computed):
            return Column(name)
    return with_names(expr, names) if names.keys() >= set(columns_of(expr)) else None


def with_names(expr: Expr, names: dict[str, str]) -> Expr:
    """Rename the columns of an expression."""
    if isinstance(expr, Column):
        return Column(names[expr.name])
    if isinstance(expr, Call):
        return replace(expr, arguments=tuple(with_names(a, names) for a in expr.arguments))
    return expr


# --- operators ----------------------------------------------------------------------------


Keys: TypeAlias = tuple[Expr, ...]


def keys_of(node: Node, graph: FlowGraph) -> tuple[Keys | None, ...] | None:
    """Return the keys that co-locate each input; None for an input that every shard needs in full.

    The result is None if rows may be anywhere, or if all of them must meet.
    """
    keys = node.operator.placement().keys
    if keys is None:
        return None
    pairs = zip(keys, node.inputs, strict=True)
    return tuple(
        whole_row_key(graph.nodes[source].schema) if isinstance(key, EqualRows) else key
        for key, source in pairs
    )


def whole_row_key(schema: Schema) -> tuple[Expr, ...]:
    return tuple(Column(name) for name in schema.names)


def spread_after(node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    """Return the distribution of an operator's output, given those of its inputs."""
    if inputs and all(spread.on_one for spread in inputs):
        return ON_ONE
    schemas = [graph.nodes[source].schema for source in node.inputs]
    lineage = node.operator.lineage(schemas, node.schema)
    found = [spread.renamed(known.items()) for spread, known in zip(inputs, lineage, strict=True)]
    if not found:
        return ANYHOW
    return _of_either(found) if node.operator.unites else _of_both(found)


def _of_either(spreads: Sequence[Spread]) -> Spread:
    """Return the distribution of a union: the one shared by all its inputs."""
    first, *others = (spread.positions for spread in spreads)
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


def _of_both(spreads: Sequence[Spread]) -> Spread:
    """Return the distribution of rows built from one row of each stream, all on the same shard."""
    first, *others = (spread.positions for spread in spreads)
    if first is None:
        return ANYHOW
    met = [other for other in others if other is not None and len(other) == len(first)]
    return Spread(tuple(sum((other[at] for other in met), same) for at, same in enumerate(first)))


# --- joins of two spreads ------------------------------------------------------------------


def matching_keys(spread: Spread, keys: Sequence[Expr]) -> list[set[int]] | None:
    """Return the indices of the keys equal to each position of the spread; None if a position has none."""
    if spread.positions is None:
        return None
    found = [
        {at for at, key in enumerate(keys) if any(key.same(e) for e in same)} for same in spread.positions
    ]
    return found if all(found) else None


def common_keys(one: list[set[int]] | None, other: list[set[int]] | None) -> list[int] | None:
    """Return the indices of keys by which both inputs are distributed alike; None if there are none."""
    if one is None or other is None or len(one) != len(other):
        return None
    both = [a & b for a, b in zip(one, other, strict=True)]
    return [min(b) for b in both] if all(both) else None
