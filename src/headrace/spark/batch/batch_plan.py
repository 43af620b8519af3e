"""Division of a batch flow: native nodes, loops, and subplans that run on the in-process engine.

A *subplan* is a part of the flow that one machine runs. Nodes are in the same subplan where

- they form a loop,
- one reads the order of the other's rows,
- one hears of time from the other, and cannot do without it,
- they must see the same ticks: a flow that defers rows, or waits for the end of its
  input, has several ticks even in a batch, and some operators answer each by itself.

A subplan takes in all that lies between two of its nodes, so that subplans and native nodes can be computed
one after another. `headrace.spark.batch.subplans` distributes the rows of a subplan.

A DataFrame has no order. So an operator that reads the order of its rows runs in one subplan with the
operators between it and the sources, and the source's rows get an *ordinal*: their original position.
Filters and selections by expressions carry the ordinal along as native columns, and need not be in the
subplan. An order that means something (the fact `ordered`) is all that is asked of most streams.
`assume_ordered` makes one out of the order in which rows happen to come; then everything up to the sources
has to run as it does in-process.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from headrace.analysis import analyse
from headrace.expr.types import holds_maps
from headrace.graph.graph_algorithms import (
    adjacency_lists,
    is_cyclic,
    strongly_connected_components,
    topological_order,
)
from headrace.graph.operator_declarations import ANYWHERE, Delay
from headrace.lowering.forms import lower_operator
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.operators.event_time.watermark import EndOfInput
from headrace.operators.feedback import FeedbackOperator
from headrace.operators.join.join import Join
from headrace.spark.batch import frames  # noqa: F401  # registers the native form of sources
from headrace.spark.placing.pushdown import is_native
from headrace.spark.refusals import check_runs_on_spark

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from headrace.graph.node import FlowGraph, Node, Operator
    from headrace.graph.operator_declarations import Facts


class BatchForm(Enum):
    """Form in which an operator runs in a batch, if its row order is not read."""

    NATIVE = "native"
    ROWS = "row by row, wherever rows are"
    SUBPLAN = "on the in-process engine"


def form(node: Node, graph: FlowGraph) -> BatchForm:
    """Choose the form of a node whose row order is not read downstream."""
    operator = node.operator
    native = lower_operator.dispatch(type(operator)) is not lower_operator.dispatch(object)
    if operator.linear and len(node.inputs) == 1 and (not native or next(operator.callables(), None)):
        return BatchForm.ROWS
    # Which row is the first is only known to who has them in order.
    in_order = any(
        operator.reads_order(port) and not graph.nodes[source].operator.at_most_one_row()
        for port, source in enumerate(node.inputs)
    )
    in_rows = in_order or _compares_maps(node, graph)
    return BatchForm.NATIVE if native and not in_rows else BatchForm.SUBPLAN


def _compares_maps(node: Node, graph: FlowGraph) -> bool:
    """Return whether an operator may compare rows with maps, which Spark's columns cannot."""
    if isinstance(node.operator, Join) or node.operator.placement() == ANYWHERE:
        return False
    return any(holds_maps(f.type) for source in node.inputs for f in graph.nodes[source].schema.fields)


# --- ticks and time ----------------------------------------------------------------------


def starts_ticks(operator: Operator) -> bool:
    """Return whether the operator emits rows in a later tick than their input's."""
    return any(port.delay is Delay.TICK for port in operator.ports())


def exposes_tick_count(operator: Operator) -> bool:
    """Return whether the operator emits in ticks that others start, so that their number is visible."""
    return operator.runs_each_tick or any(port.delay is Delay.LAZY for port in operator.ports())


@dataclass(frozen=True, slots=True)
class Native:
    """A node computed in native columns."""

    node: int


@dataclass(frozen=True, slots=True)
class Loop:
    """A cycle of operators on bags."""

    nodes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Subplan:
    """Nodes that run together on the in-process engine, in flow order."""

    nodes: tuple[int, ...]


BatchUnit: TypeAlias = Native | Loop | Subplan
Reads: TypeAlias = "dict[int, tuple[int | None, ...]]"
"""Inputs of each needed node; None for a port that a batch can do without."""


@dataclass(frozen=True)
class BatchPlan:
    """A divided flow. units: in dependency order.

    zeros: nodes behind which 0.0 is put for -0.0.
    """

    graph: FlowGraph
    facts: Sequence[Facts]
    zeros: frozenset[int]
    order: OrderedNodes
    reads: Reads
    units: tuple[BatchUnit, ...]

    def exits(self, nodes: Sequence[int]) -> tuple[int, ...]:
        """Return the nodes among `nodes` whose rows are read by others."""
        inside = set(nodes)
        read = {i for n, inputs in self.reads.items() if n not in inside for i in inputs}
        return tuple(n for n in nodes if n in read)

    def nodes_with_columns(self) -> set[int]:
        """Return the nodes whose rows exist as Spark columns."""
        found: set[int] = set()
        for unit in self.units:
            found |= {unit.node} if isinstance(unit, Native) else set(self.exits(unit.nodes))
        return found


def plan_batch(graph: FlowGraph) -> BatchPlan:
    """Divide a flow. Raises `NotOnSpark`, and the errors of the flow's analysis."""
    analysis = analyse(graph)
    facts = analysis.facts
    everything: Reads = {n.id: n.inputs for n in graph.nodes}
    reads = _needed(graph, everything)
    order, together = find_order(graph, facts, reads), _of_the_same_ticks(graph, reads)
    exact = order.read | together | _in_loops(graph)
    less = {n: i if n in exact else _without_completeness(graph.nodes[n], i) for n, i in reads.items()}
    # An end that nobody hears of is a tick all the same.
    reads = _needed(graph, less, together)
    order = find_order(graph, facts, reads)
    units = _Divider(graph, reads, order, together).units()
    plan = BatchPlan(graph, facts, analysis.zeros.made, order, reads, units)
    check_runs_on_spark(graph, "batch", plan.nodes_with_columns())
    return plan


def _needed(graph: FlowGraph, reads: Reads, further: Iterable[int] = ()) -> Reads:
    """Return the nodes that lead to a sink, to a null sink, or to `further` nodes."""
    ends = {n.id for n in graph.nodes if isinstance(n.operator, SinkOperator) or n.operator.ends_streams}
    needed = ends | set(further)
    waiting = list(needed)
    while waiting:
        for i in reads[waiting.pop()]:
            if i is not None and i not in needed:
                needed.add(i)
                waiting.append(i)
    return {n: reads[n] for n in sorted(needed)}


def _without_completeness(node: Node, inputs: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Return the inputs without mere completeness signals, since a batch delivers all input at once."""
    ports = node.operator.ports()
    return tuple(None if port.completeness else i for port, i in zip(ports, inputs, strict=True))


def _in_loops(graph: FlowGraph) -> set[int]:
    after = adjacency_lists(len(graph.nodes), ((e.source, e.target) for e in graph.edges()))
    return {n for group in strongly_connected_components(after) if is_cyclic(group, after) for n in group}


def _of_the_same_ticks(graph: FlowGraph, reads: Reads) -> set[int]:
    """Return the nodes that must see the same ticks, with all nodes between them."""
    operators = {n: graph.nodes[n].operator for n in reads}
    late = {n for n, o in operators.items() if starts_ticks(o) or isinstance(o, EndOfInput)}
    if not late:
        return set()
    # What is linear depends on ticks by the order of its rows alone; who reads that is in its subplan.
    cut = {n for n, o in operators.items() if o.depends_on_cut() and not o.linear}
    counting = {n for n, o in operators.items() if exposes_tick_count(o)}
    seeds = late | counting if counting else set[int]()
    for n in cut:
        # Rows come in several ticks from who defers them, and from who speaks in each later tick.
        before = _reachable(graph, {n}, backwards=True) & (late | counting)
        seeds |= {n, *before} if before else set()
    return _reachable(graph, seeds) & _reachable(graph, seeds, backwards=True) & reads.keys()


def _reachable(graph: FlowGraph, start: set[int], *, backwards: bool = False) -> set[int]:
    """Return the nodes reachable from `start`, forwards or backwards."""
    edges = [(e.target, e.source) if backwards else (e.source, e.target) for e in graph.edges()]
    after = adjacency_lists(len(graph.nodes), edges)
    found, waiting = set(start), list(start)
    while waiting:
        for m in after[waiting.pop()]:
            if m not in found:
                found.add(m)
                waiting.append(m)
    return found


# --- groups --------------------------------------------------------------------------------


class _Divider:
    """Grouping of nodes; `group[n]` is the lowest-numbered node in n's group."""

    def __init__(self, graph: FlowGraph, reads: Reads, order: OrderedNodes, together: set[int]) -> None:
        self._graph, self._reads, self._order = graph, reads, order
        self._edges = [(i, n) for n, inputs in reads.items() for i in inputs if i is not None]
        self._members = {n: [n] for n in reads}
        self._group = {n: n for n in reads}
        self._form = {n: form(graph.nodes[n], graph) for n in reads}
        self._on_subplan = {n for n, f in self._form.items() if f is not BatchForm.NATIVE}
        self._merge(together)

    def units(self) -> tuple[BatchUnit, ...]:
        for i, n in self._edges:
            if self._graph.nodes[i].operator.gives_watermark or (
                (i, n) in self._order.edges and i not in self._order.carried
            ):
                self._merge((i, n))
        self._close()
        self._fuse()
        return tuple(self._unit(group) for group in self._in_order())

    def _merge(self, nodes: Iterable[int]) -> None:
        groups = sorted({self._group[n] for n in nodes})
        for other in groups[1:]:
            for n in self._members.pop(other):
                self._group[n] = groups[0]
                self._members[groups[0]].append(n)

    def _between(self) -> list[tuple[int, int]]:
        pairs = {(self._group[i], self._group[n]) for i, n in self._edges}
        return [(a, b) for a, b in sorted(pairs) if a != b]

    def _close(self) -> None:
        """Add the nodes that lie between nodes of the same group."""
        after = adjacency_lists(len(self._graph.nodes), self._between())
        for group in strongly_connected_components(after):
            self._merge(n for g in group for n in self._members.get(g, ()))

    def _fuse(self) -> None:
        """Fuse row-by-row nodes into the subplan or row-by-row group that is their only reader."""
        readers = {i: sum(1 for j, _ in self._edges if j == i) for i, _ in self._edges}
        for n in self._reads:
            alone = len(self._members[self._group[n]]) == 1
            if self._form[n] is BatchForm.ROWS and alone:
                (i,) = self._reads[n]
                assert i is not None
                if readers[i] == 1 and self._is_subplan(self._members[self._group[i]]):
                    self._merge((i, n))

    def _in_order(self) -> list[list[int]]:
        after = adjacency_lists(len(self._graph.nodes), self._between())
        return [sorted(self._members[g]) for g in topological_order(after) if g in self._members]

    def _is_subplan(self, nodes: Sequence[int]) -> bool:
        return len(nodes) > 1 or nodes[0] in self._on_subplan

    def _unit(self, nodes: list[int]) -> BatchUnit:
        if not self._is_subplan(nodes):
            return Native(nodes[0])
        return Loop(tuple(nodes)) if self._is_loop_of_bags(nodes) else Subplan(tuple(nodes))

    def _is_loop_of_bags(self, nodes: Sequence[int]) -> bool:
        loops = _in_loops(self._graph)
        return all(
            n in loops
            and n not in self._order.read
            and not exposes_tick_count(self._graph.nodes[n].operator)
            and (
                self._form[n] is not BatchForm.SUBPLAN
                or isinstance(self._graph.nodes[n].operator, FeedbackOperator)
            )
            for n in nodes
        )


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
        is_source = isinstance(node.operator, SourceOperator)
        if is_source or (n not in arriving and is_native(node) and node.inputs[0] in carried):
            carried.add(n)
    return frozenset(carried)
