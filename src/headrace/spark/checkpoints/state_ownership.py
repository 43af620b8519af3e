"""Ownership of state entries by shards, for any number of shards.

State is on the shard that received the rows it was made from. So its location follows from its key, by the
values that also route these rows. State without keys of its own (calendars of windows, rows deferred to the
next tick) is taken apart and reassembled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.expr.check import check
from headrace.expr.tree import Column, Expr, columns_of
from headrace.expr.types import Field, Schema
from headrace.spark.placing.routing import row_divider
from headrace.spark.placing.row_placement import (
    ANYHOW,
    ON_ONE,
    ByKey,
    Spread,
    ToAll,
    ToOne,
    keys_of,
    spread_after,
    spread_by,
)

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph, Node
    from headrace.graph.operator_declarations import KeyedSlot
    from headrace.spark.placing.stages import Stage

Home: TypeAlias = Callable[[Any], int]
"""Function from a key, as stored in the slot, to its shard."""


class StateOwnership:
    """Mapping from state entries of a stage's operators to their owner shards."""

    def __init__(self, stage: Stage, shards: int) -> None:
        self._graph = stage.graph
        self._shards = shards
        self._spreads = _spreads(stage, shards)

    def on_one(self, node: Node) -> bool:
        """Return whether all state of a node is on the first shard."""
        return all(self._spreads[source].on_one for source in node.inputs)

    def home(self, node: Node, slot: KeyedSlot) -> Home | None:
        """Return the function from a key to its shard; None if the key does not determine it."""
        if self.on_one(node):
            return lambda key: 0
        keys = (keys_of(node, self._graph) or ())[slot.port]
        spread = self._spreads[node.inputs[slot.port]]
        if keys is None or spread.positions is None:
            return None
        schema = _schema_of_keys(keys, self._graph.nodes[node.inputs[slot.port]].schema)
        exprs = [_in_terms_of(same, keys, schema) for same in spread.positions]
        if any(expr is None for expr in exprs):
            return None
        divide = row_divider(
            ByKey(tuple(e for e in exprs if e is not None)), schema, self._shards, weighted=False
        )
        in_tuple = len(keys) == 1 and slot.bare

        def home(key: Any) -> int:
            values = key[0] if slot.of_pair else key
            return next(iter(divide([(values,) if in_tuple else values])))

        return home

    def home_of_row(self, node: Node) -> Home | None:
        """Return the function from an input row to its shard."""
        if self.on_one(node):
            return lambda row: 0
        route = self._spreads[node.inputs[0]].route()
        if route is None:
            return None
        schema = self._graph.nodes[node.inputs[0]].schema
        divide = row_divider(route, schema, self._shards, weighted=False)
        return lambda row: next(iter(divide([row[: len(schema.fields)]])))


def _schema_of_keys(keys: Sequence[Expr], schema: Schema) -> Schema:
    """Return the schema of the tuple of keys. A key that is a column keeps its name."""
    fields: list[Field] = []
    for number, key in enumerate(keys):
        typed = check(key, schema)
        name = key.name if isinstance(key, Column) else f"key {number}"
        taken = any(f.name == name for f in fields)
        fields.append(Field(f"key {number}" if taken else name, typed.type, typed.nullable))
    return Schema(tuple(fields))


def _in_terms_of(same: Sequence[Expr], keys: Sequence[Expr], schema: Schema) -> Expr | None:
    for number, key in enumerate(keys):
        if any(key.same(expr) for expr in same):
            return Column(schema.fields[number].name)
    plain = {key.name for key in keys if isinstance(key, Column)}
    return next((expr for expr in same if plain.issuperset(columns_of(expr))), None)


def _spreads(stage: Stage, shards: int) -> dict[int, Spread]:
    """Return the distribution of each node's rows over the shards of a stage."""
    graph = stage.graph
    found: dict[int, Spread] = {}
    for exchange in stage.arriving:
        found[graph.sources[exchange.name]] = _arrived(exchange.route, shards)
    for node in _in_order(graph):
        if node.id not in found:
            inputs = [found.get(source, ON_ONE) for source in node.inputs]
            everywhere = (port for port, keys in enumerate(keys_of(node, graph) or ()) if keys is None)
            for port in everywhere if shards > 1 else ():
                inputs[port] = ANYHOW
            found[node.id] = spread_after(node, graph, inputs) if inputs else ON_ONE
    return found


def _arrived(route: object, shards: int) -> Spread:
    if shards == 1 or isinstance(route, ToOne):
        return ON_ONE
    # What every shard has leaves the spread of what it is used with as it is.
    return (
        spread_by(*route.keys) if isinstance(route, ByKey) else ON_ONE if isinstance(route, ToAll) else ANYHOW
    )


def _in_order(graph: FlowGraph) -> Iterator[Node]:
    """Yield the nodes in topological order; those of a loop, which are on one shard, in any order."""
    waiting = list(graph.nodes)
    done: set[int] = set()
    while waiting:
        ready = [n for n in waiting if done.issuperset(n.inputs)] or waiting[:1]
        yield from ready
        done.update(n.id for n in ready)
        waiting = [n for n in waiting if n.id not in done]
