"""Column lineage: the columns and source rows that sinks depend on.

*Liveness* finds the columns that sinks depend on, and removes all others. The narrowed flow has a projection
before each operator that stores or exchanges rows, and optionally after each source. Its nodes keep their
numbers and names, which state and plans refer to; projections come last. Results are unchanged. Dead columns
are neither sent nor stored, and cannot fail, since they are not computed. Loops carry whole rows. The method
is classic backward dataflow analysis, of columns instead of variables.

*Restrictions* find the source rows that can have contributed to a row of a sink, as far as keys and handed-on
columns tell. The columns of the row are followed backwards. Every column that an operator hands on
(`Operator.lineage`) keeps its value. Through an operator that brings rows with equal keys together
(`Operator.placement`), the key holds for all of its inputs: rows with other keys cannot meet the ones in
question. What remains at a source is a condition on its columns.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.expr.tree import Column
from headrace.expr.types import Schema
from headrace.graph.graph_algorithms import adjacency_lists, is_cyclic, strongly_connected_components
from headrace.graph.node import Node
from headrace.graph.operator_declarations import EqualRows
from headrace.operators.endpoints import SourceOperator
from headrace.operators.rows import Select

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from headrace.expr.tree import Expr
    from headrace.graph.node import FlowGraph
    from headrace.graph.operator_declarations import PortKey


def live_columns(graph: FlowGraph) -> list[frozenset[str]]:
    """Compute the live columns of each node's output: those that readers depend on, or else the first one."""
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
    """Compute the columns of each source's input that the sinks depend on."""
    live = live_columns(graph)
    return {name: _given(graph.nodes[n].operator, live[n]) for name, n in graph.sources.items()}


def columns_unread(graph: FlowGraph) -> dict[str, list[str]]:
    """Compute the columns of each source's input that no sink depends on."""
    found: dict[str, list[str]] = {}
    for name, read in columns_read(graph).items():
        node = graph.nodes[graph.sources[name]]
        unread = _given(node.operator, frozenset(node.schema.names)) - read
        found[name] = [column for column in node.schema.names if column in unread]
    return found


def _given(operator: object, columns: frozenset[str]) -> frozenset[str]:
    return operator.columns_given(columns) if isinstance(operator, SourceOperator) else columns


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
    """Return `columns`, or the schema's first column if empty: rows need a column to be counted."""
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
        if isinstance(node.operator, SourceOperator):
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


Equalities: TypeAlias = "tuple[tuple[Expr, Any], ...]"
"""Expressions over a stream's columns with their values, all of which hold. Empty: any row."""


@dataclass(frozen=True, slots=True)
class Restriction:
    """Condition on the rows of a source: at least one of the alternatives holds.

    alternatives: one per way from the source to the sink; None if some way leaves every row possible.
    """

    alternatives: tuple[Equalities, ...] | None

    def __str__(self) -> str:
        if self.alternatives is None:
            return ""
        texts = [" and ".join(f"{expr} = {value!r}" for expr, value in each) for each in self.alternatives]
        return ", or ".join(texts)


def restrict_sources(
    graph: FlowGraph, sink: str, row: Sequence[Any], *, keys_only: bool
) -> dict[str, Restriction]:
    """Find, for a row of a sink, the condition on the rows of each source that reaches the sink.

    keys_only: where an operator brings rows together, follow only its key. Then the rows that meet the
               conditions are all that can influence the row. Otherwise a row that merely competes with it,
               such as one beaten to the top of its group, may be left out.
    """
    node = graph.nodes[graph.nodes[graph.sinks[sink]].inputs[0]]
    start = tuple((Column(name), value) for name, value in zip(node.schema.names, row, strict=True))
    found: dict[int, dict[str, Equalities]] = {}
    todo: list[tuple[int, Equalities]] = [(node.id, start)]
    while todo:
        at, equalities = todo.pop()
        seen = found.setdefault(at, {})
        key = str(sorted(f"{expr} = {value!r}" for expr, value in equalities))
        if key in seen or "[]" in seen:  # "[]": any row is possible already
            continue
        seen[key] = equalities
        todo += _through(graph, graph.nodes[at], equalities, keys_only)
    return {
        name: Restriction(None if "[]" in found[at] else tuple(found[at].values()))
        for name, at in graph.sources.items()
        if at in found
    }


def matched_keys(graph: FlowGraph) -> list[dict[str, tuple[Expr, ...]]]:
    """Find the keys by which operators match rows of several sources.

    Per operator: the key as expressions over the columns of each source from which all of it is handed on.
    """
    found: list[dict[str, tuple[Expr, ...]]] = []
    for node in graph.nodes:
        keys = node.operator.placement().keys
        if keys is None or len(node.inputs) < 2:
            continue
        schemas = [graph.nodes[source].schema for source in node.inputs]
        matched: dict[str, tuple[Expr, ...]] = {}
        for key, source, schema in zip(keys, node.inputs, schemas, strict=True):
            origins = [_origin(graph, source, part) for part in _key(key, schema)]
            names = {origin[0] for origin in origins if origin}
            if len(names) == 1 and all(origins):
                matched.setdefault(names.pop(), tuple(origin[1] for origin in origins if origin))
        if len(matched) > 1:
            found.append(matched)
    return found


def _origin(graph: FlowGraph, at: int, expr: Expr) -> tuple[str, Expr] | None:
    """Trace an expression over a node's columns back to the source that passes all of them on."""
    node = graph.nodes[at]
    if not node.inputs:
        return next(((name, expr) for name, id_ in graph.sources.items() if id_ == at), None)
    schemas = [graph.nodes[source].schema for source in node.inputs]
    for source, lineage in zip(node.inputs, node.operator.lineage(schemas, node.schema), strict=True):
        if carried := _carried(((expr, None),), lineage):
            return _origin(graph, source, carried[0][0])
    return None


def _through(
    graph: FlowGraph, node: Node, equalities: Equalities, keys_only: bool
) -> list[tuple[int, Equalities]]:
    """Translate equalities on a node's output into equalities on its inputs."""
    operator = node.operator
    schemas = [graph.nodes[source].schema for source in node.inputs]
    lineage = operator.lineage(schemas, node.schema) if schemas else ()
    carried = [_carried(equalities, known) for known in lineage]
    placement = operator.placement()
    by_key = [() for _ in carried]
    if placement.keys is not None:
        keys = [_key(key, schema) for key, schema in zip(placement.keys, schemas, strict=True)]
        by_key = _by_key(keys, carried)
    if keys_only and (placement.whole or placement.keys is not None):
        carried = by_key
    else:
        carried = [_both(own, key) for own, key in zip(carried, by_key, strict=True)]
    ports = zip(operator.ports(), node.inputs, carried, strict=True)
    return [(source, holds) for port, source, holds in ports if not port.completeness]


def _carried(equalities: Equalities, lineage: Any) -> Equalities:
    """Express equalities over the columns of a port, as far as the operator passes them on."""
    carried: list[tuple[Expr, Any]] = []
    for expr, value in equalities:
        if isinstance(expr, Column):
            if (source := lineage.get(expr.name)) is not None:
                carried.append((source, value))
        elif all(_keeps(lineage, column) for column in expr.walk() if isinstance(column, Column)):
            carried.append((expr, value))
    return tuple(carried)


def _both(one: Equalities, other: Equalities) -> Equalities:
    return (*one, *(each for each in other if not any(each[0].same(expr) for expr, _ in one)))


def _keeps(lineage: Any, column: Column) -> bool:
    source = lineage.get(column.name)
    return source is not None and source.same(column)


def _key(key: PortKey, schema: Schema) -> tuple[Expr, ...]:
    if isinstance(key, EqualRows):
        return tuple(Column(name) for name in schema.names)
    return key or ()


def _by_key(keys: list[tuple[Expr, ...]], carried: list[Equalities]) -> list[Equalities]:
    """Keep the equalities on key expressions, and apply them to all ports."""
    known: dict[int, Any] = {}
    for key, equalities in zip(keys, carried, strict=True):
        for position, part in enumerate(key):
            for expr, value in equalities:
                if expr.same(part):
                    known[position] = value
    return [
        tuple((part, known[position]) for position, part in enumerate(key) if position in known)
        for key in keys
    ]
