"""Column liveness: the columns that a flow's sinks depend on, and removal of all others.

The narrowed flow has a projection before each operator that stores or exchanges rows, and optionally after
each source. Its nodes keep their numbers and names, which state and plans refer to; projections come last.
Results are unchanged. Dead columns are neither sent nor stored, and cannot fail, since they are not computed.
Loops carry whole rows. The method is classic backward dataflow analysis, of columns instead of variables.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from headrace.expr.tree import Column
from headrace.expr.types import Schema
from headrace.graph.graph_algorithms import adjacency_lists, is_cyclic, strongly_connected_components
from headrace.graph.node import Node
from headrace.operators.select import Select
from headrace.operators.source import Source

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from headrace.graph.node import FlowGraph


def live_columns(graph: FlowGraph) -> list[frozenset[str]]:
    """Compute the live columns of each node's output: those its readers depend on, or its first column."""
    found = [set[str]() for _ in graph.nodes]
    for group, looped in _groups(graph):
        for n in group:
            node = graph.nodes[n]
            found[n] |= _something(found[n], node.schema)
            reads = None if looped else _reads(graph, node, found[n])
            for port, source in enumerate(node.inputs):
                found[source].update(graph.nodes[source].schema.names if reads is None else reads[port])
    return [frozenset(columns) for columns in found]


def columns_read(graph: FlowGraph) -> dict[str, frozenset[str]]:
    """Compute which columns of what each source is given the sinks depend on."""
    live = live_columns(graph)
    return {name: _given(graph.nodes[n].operator, live[n]) for name, n in graph.sources.items()}


def columns_unread(graph: FlowGraph) -> dict[str, list[str]]:
    """Compute which columns of what each source is given no sink depends on."""
    found: dict[str, list[str]] = {}
    for name, read in columns_read(graph).items():
        node = graph.nodes[graph.sources[name]]
        unread = _given(node.operator, frozenset(node.schema.names)) - read
        found[name] = [column for column in node.schema.names if column in unread]
    return found


def _given(operator: object, columns: frozenset[str]) -> frozenset[str]:
    return operator.columns_given(columns) if isinstance(operator, Source) else columns


def live_graph(graph: FlowGraph, *, at_sources: bool = True) -> FlowGraph:
    """Return the flow without dead columns.

    at_sources: project after each source, so that dead columns are not fetched. An engine that gets whole
    rows anyway does not need this, and can then show a failing row as received.
    """
    narrowing = _Narrowing(graph, live_columns(graph), list(graph.nodes), at_sources)
    for group, looped in reversed(_groups(graph)):
        for n in group:
            if not looped:
                narrowing.narrow(n)
    return replace(graph, nodes=tuple(narrowing.nodes))


def _groups(graph: FlowGraph) -> list[tuple[list[int], bool]]:
    """Return the strongly connected components, readers first, each with a flag that marks loops."""
    after = adjacency_lists(len(graph.nodes), ((e.source, e.target) for e in graph.edges()))
    return [(group, is_cyclic(group, after)) for group in strongly_connected_components(after)]


def _something(columns: AbstractSet[str], schema: Schema) -> AbstractSet[str]:
    """Return `columns`, or the first of the schema if there are none: a row needs a column to be counted."""
    return columns or set(schema.names[:1])


def _reads(graph: FlowGraph, node: Node, live: AbstractSet[str]) -> Sequence[AbstractSet[str]] | None:
    """Return the columns that a node reads of each input, or None if it needs whole rows."""
    inputs = [graph.nodes[source].schema for source in node.inputs]
    reads = node.operator.reads(inputs, node.schema, live)
    if reads is None:
        return None
    return [_something(columns, schema) for columns, schema in zip(reads, inputs, strict=True)]


def _goes_whole(node: Node, port: int) -> bool:
    placement = node.operator.placement()
    return placement.whole or (placement.keys is not None and not placement.keys[port])


@dataclass(slots=True)
class _Narrowing:
    """Narrowed flow under construction.

    nodes: nodes so far, new ones after those of `graph`. behind: projection of each source. made: projections
    by node and columns. together: per node, the columns read by all ports that place its rows on one shard;
    these share a projection, so that rows are sent once.
    """

    graph: FlowGraph
    live: Sequence[AbstractSet[str]]
    nodes: list[Node]
    at_sources: bool
    behind: dict[int, int] = field(default_factory=dict[int, int])
    made: dict[tuple[int, AbstractSet[str]], int] = field(
        default_factory=dict[tuple[int, "AbstractSet[str]"], int]
    )
    together: dict[int, set[str]] = field(default_factory=dict[int, set[str]])

    def __post_init__(self) -> None:
        for node in self.graph.nodes:
            for port, columns in enumerate(_reads(self.graph, node, self.live[node.id]) or ()):
                if _goes_whole(node, port):
                    self.together.setdefault(node.inputs[port], set()).update(columns)

    def narrow(self, n: int) -> None:
        """Rewrite a node to read and emit only live columns. Its inputs must already be rewritten."""
        node = self.graph.nodes[n]
        if isinstance(node.operator, Source):
            if self.at_sources and self.live[n] < set(node.schema.names):
                self.behind[n] = self._projection(n, self.live[n], f"{node.name} columns", node)
            return
        reads = _reads(self.graph, node, self.live[n])
        if reads is None:
            return
        sources = tuple(
            self._input(node, port, source, columns)
            for port, (source, columns) in enumerate(zip(node.inputs, reads, strict=True))
        )
        inputs = [self.graph.nodes[source].schema for source in node.inputs]
        kept = [self.nodes[source].schema for source in sources]
        fields = node.schema.fields
        operator = node.operator
        if kept != inputs or self.live[n] < set(node.schema.names):
            operator, fields = operator.over(inputs, kept, node.schema, self.live[n])
        schema = node.schema if fields == node.schema.fields else Schema(fields)
        self.nodes[n] = replace(node, operator=operator, inputs=sources, schema=schema)

    def _input(self, node: Node, port: int, source: int, columns: AbstractSet[str]) -> int:
        """Return the node that a port reads; it may have extra columns if dropping them saves nothing."""
        gathered = _goes_whole(node, port)
        if gathered:
            columns = self.together[source]
        source = self.behind.get(source, source)
        if (node.operator.row_by_row and not gathered) or columns >= set(self.nodes[source].schema.names):
            return source
        return self._projection(source, columns, f"{node.name} {node.operator.ports()[port].name}", node)

    def _projection(self, source: int, columns: AbstractSet[str], name: str, node: Node) -> int:
        made = self.made.setdefault((source, frozenset(columns)), len(self.nodes))
        if made == len(self.nodes):
            fields = tuple(f for f in self.nodes[source].schema.fields if f.name in columns)
            operator = Select(tuple((f.name, Column(f.name)) for f in fields))
            self.nodes.append(Node(made, name, operator, (source,), Schema(fields), node.location))
        return made
