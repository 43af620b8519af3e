"""Search for nodes whose row order is read, so that they must emit rows in the in-process engine's order.

A DataFrame has no order. So an operator that reads the order of its rows runs in one subplan with the
operators between it and the sources, and the source's rows get an *ordinal*: their original position. Filters
and selections by expressions carry the ordinal along as native columns, and need not be in the subplan.

An order that means something (the fact `ordered`) is all that is asked of most
streams. `assume_ordered` makes one out of the order in which rows happen to come; then
everything up to the sources has to run as it does in-process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.operators.source import Source
from headrace.spark.placing.native import is_native

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from headrace.graph.node import FlowGraph, Node
    from headrace.graph.operator_declarations import Facts


@dataclass(frozen=True, slots=True)
class OrderedNodes:
    """Nodes of a batch whose row order matters.

    read:     nodes whose order is read.
    arriving: those whose rows must arrive in the in-process order, although it has no meaning.
    carried:  those that are a source, or native columns of one, and so carry an ordinal.
    edges:    from a node whose order is read to one that reads it or passes it on.
    """

    read: frozenset[int]
    arriving: frozenset[int]
    carried: frozenset[int]
    edges: frozenset[tuple[int, int]]


def find_order(graph: FlowGraph, facts: Sequence[Facts], live: Iterable[int]) -> OrderedNodes:
    """Find the nodes among `live` whose row order is read."""
    own = {(i, n) for n in live for i in _own_wants(graph, graph.nodes[n])}
    arriving_by: dict[int, bool] = {}
    waiting = [(i, False) for i, _ in own]
    while waiting:
        n, as_it_comes = waiting.pop()
        as_it_comes = as_it_comes or not facts[n].ordered
        if arriving_by.get(n) in (True, as_it_comes):
            continue
        arriving_by[n] = as_it_comes
        if not _makes_order(graph, facts, graph.nodes[n]):
            waiting.extend((i, as_it_comes) for i in graph.nodes[n].inputs)
    arriving = frozenset(n for n, as_it_comes in arriving_by.items() if as_it_comes)
    carried = _carried(graph, arriving_by.keys(), arriving)
    handed = {
        (i, n)
        for n in arriving_by.keys() - carried
        if not _makes_order(graph, facts, graph.nodes[n])
        for i in graph.nodes[n].inputs
    }
    return OrderedNodes(frozenset(arriving_by), arriving, carried, frozenset(own | handed))


def _own_wants(graph: FlowGraph, node: Node) -> Iterator[int]:
    """Yield the inputs that a node itself reads in order."""
    for port, source in enumerate(node.inputs):
        if node.operator.reads_order(port) and not graph.nodes[source].operator.at_most_one_row():
            yield source


def _makes_order(graph: FlowGraph, facts: Sequence[Facts], node: Node) -> bool:
    """Return whether a node determines the order of its rows independently of its inputs' order."""
    if node.operator.makes_order:
        # Of rows that mean no order, ties go by all their columns.
        return not facts[node.inputs[0]].ordered
    return node.operator.at_most_one_row()


def _carried(graph: FlowGraph, read: Collection[int], arriving: Collection[int]) -> frozenset[int]:
    carried: set[int] = set()
    for n in sorted(read):
        node = graph.nodes[n]
        is_source = isinstance(node.operator, Source)
        if is_source or (n not in arriving and is_native(node) and node.inputs[0] in carried):
            carried.add(n)
    return frozenset(carried)
