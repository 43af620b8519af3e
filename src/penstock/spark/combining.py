"""Combining: work done where rows are, so that few of them travel to where they meet.

An aggregate whose parts add up is divided in two before the flow is cut into
stages: a partial one that stays with its input, and the one that keeps the groups.
A top_k of rows that are never taken back gets candidates likewise. Which operators
this is done to is decided by the flow alone: the layout of the state depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import singledispatch
from typing import TYPE_CHECKING

from penstock.analysis import analyse
from penstock.engine.partials import Candidates, MergedAggregate, PartialAggregate
from penstock.engine.steps.partial import parts_of
from penstock.expr.check import check
from penstock.expr.tree import Column
from penstock.expr.types import INT64, Field, Schema
from penstock.flow.lifetime import Lifetime
from penstock.flow.operators.aggregate import Aggregate
from penstock.flow.operators.top_k import TopK
from penstock.graph.node import FlowGraph, Node, Operator
from penstock.spark.placement import Spread, spread_after
from penstock.spark.stages import cut

if TYPE_CHECKING:
    from collections.abc import Collection

ROWS = "rows"
"""The column of a partial aggregate's output that counts the rows of the group."""


def combined(graph: FlowGraph) -> FlowGraph:
    """The flow with partial operators before its exchanges. Nodes keep their numbers; new ones come last.

    Raises `NotOnSpark` as `stages.cut` does.
    """
    # Any number of shards above one gives the same cut; with one shard there is less to see.
    exchanged = set(_lone_readers(graph))
    if not exchanged:
        return graph
    appends = [facts.append for facts in analyse(graph).facts]
    nodes = list(graph.nodes)
    for at in sorted(exchanged):
        node = graph.nodes[at]
        (source,) = node.inputs
        divided = divide(node.operator, node, graph.nodes[source].schema, appends[source])
        if divided is None:
            continue
        partial, schema, merged = divided
        nodes.append(Node(len(nodes), node.name, partial, (source,), schema, node.place))
        nodes[at] = replace(node, operator=merged, inputs=(nodes[-1].id,))
    return replace(graph, nodes=tuple(nodes))


def combined_nodes(graph: FlowGraph) -> Collection[int]:
    """The nodes of a flow whose rows are combined before they are sent to shards."""
    return {
        at for at, node in enumerate(combined(graph).nodes[: len(graph.nodes)]) if node != graph.nodes[at]
    }


def _lone_readers(graph: FlowGraph) -> Iterator[int]:
    """Nodes with one input that comes through an exchange of which nobody needs the rows themselves."""
    for stage in cut(graph, 2).stages:
        readers = stage.graph.consumers()
        for exchange in stage.arriving:
            found = [stage.origins[e.target] for e in readers[stage.graph.sources[exchange.name]]]
            targets = [at for at in found if at is not None]
            if all(_may_be_divided(graph.nodes[at].operator) for at in targets):
                yield from targets


def _may_be_divided(operator: Operator) -> bool:
    return isinstance(operator, Aggregate | TopK) and operator.lifetime is Lifetime.STATIC


@singledispatch
def divide(
    operator: Operator, node: Node, rows: Schema, appends: bool
) -> tuple[Operator, Schema, Operator] | None:
    """The partial operator over `rows`, the schema of what it sends, and the one that reads that; or None.

    appends: whether `rows` are never taken back.
    """
    return None


@divide.register(Aggregate)
def _(
    operator: Aggregate, node: Node, rows: Schema, appends: bool
) -> tuple[Operator, Schema, Operator] | None:
    sums = parts_of([aggregation for _, aggregation in operator.aggregations], rows, appends=appends)
    if sums is None:
        return None
    keys: list[Field] = []
    for number, (_, expr) in enumerate(operator.keys):
        typed = check(expr, rows)
        keys.append(Field(f"key {number}", typed.type, typed.nullable))
    named = tuple(
        (name, Column(key.name)) for (name, _), key in zip(operator.keys, keys, strict=True)
    )  # fmt: skip
    sent = Schema((*keys, Field(ROWS, INT64), *sums))
    return PartialAggregate(operator), sent, MergedAggregate(operator, named, rows, appends)


@divide.register(TopK)
def _(operator: TopK, node: Node, rows: Schema, appends: bool) -> tuple[Operator, Schema, Operator] | None:
    return (Candidates(operator), rows, operator) if appends else None


@spread_after.register(PartialAggregate)
def _(operator: PartialAggregate, node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    keys = (Column(f"key {number}") for number in range(len(operator.of.keys)))
    return inputs[0].renamed(zip((k.name for k in keys), (e for _, e in operator.of.keys), strict=True))


@spread_after.register(MergedAggregate)
def _(operator: MergedAggregate, node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    return inputs[0].renamed(operator.keys)


@spread_after.register(Candidates)
def _(operator: Candidates, node: Node, graph: FlowGraph, inputs: Sequence[Spread]) -> Spread:
    return inputs[0]
