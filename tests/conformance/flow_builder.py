"""Builder of a flow from a case's graph, using the public API.

A stream of a case becomes a stream of `object` in a flow with given ticks. A cycle is closed by a feedback
that keeps duplicates: each copy of a row goes round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from headrace.flow.flow import Flow
from tests.conformance import operators_folds, operators_pairs, operators_rows
from tests.conformance.case_format import BadCase
from tests.conformance.graph_description import EdgeDescription, GraphDescription
from tests.conformance.graph_faults import on_cycles
from tests.conformance.operator_site import BuildSite, Rows

BUILDERS: Mapping[str, Callable[[BuildSite], Any]] = {
    **operators_rows.BUILDERS,
    **operators_pairs.BUILDERS,
    **operators_folds.BUILDERS,
}
"""Builders of operators, by name."""


def build(graph: GraphDescription, outputs: Iterable[str]) -> Flow:
    """Build the flow of a valid graph, with a sink per output.

    outputs: nodes with a single output stream, or sinks.

    Raises the errors of building a flow.
    """
    plan = _plan(graph)
    building = _Building(Flow("case", ticks="given"), graph, plan.back_edges)
    for node in plan.order:
        building.add(node)
    return building.closed(outputs)


@dataclass(frozen=True, slots=True)
class _Plan:
    """Build order of the nodes, and the back edges that run against it."""

    order: tuple[str, ...]
    back_edges: frozenset[int]


def _plan(graph: GraphDescription) -> _Plan:
    """Order nodes depth-first: an edge to an unfinished node closes a cycle."""
    leaving: dict[str, list[tuple[int, str]]] = {name: [] for name in graph.nodes}
    for at, edge in enumerate(graph.edges):
        leaving[edge.source].append((at, edge.target))
    finished: list[str] = []
    open_nodes: set[str] = set()
    seen: set[str] = set()
    back: set[int] = set()
    entered = {edge.target for edge in graph.edges}
    # Start at nodes without inputs, so that a cycle is cut where it is entered.
    for start in sorted(graph.nodes, key=lambda name: name in entered):
        if start in seen:
            continue
        seen.add(start)
        open_nodes.add(start)
        stack = [(start, iter(leaving[start]))]
        while stack:
            node, edges = stack[-1]
            for at, target in edges:
                if target in open_nodes:
                    back.add(at)
                elif target not in seen:
                    seen.add(target)
                    open_nodes.add(target)
                    stack.append((target, iter(leaving[target])))
                    break
            else:
                stack.pop()
                open_nodes.discard(node)
                finished.append(node)
    return _Plan(tuple(reversed(finished)), frozenset(back))


class _Building:
    """Flow under construction, node by node."""

    def __init__(self, flow: Flow, graph: GraphDescription, back_edges: frozenset[int]) -> None:
        self._flow = flow
        self._graph = graph
        self._back_edges = back_edges
        self._on_cycles = on_cycles(graph)
        self._made: dict[tuple[str, str], Rows] = {}
        self._feedbacks: list[tuple[Any, EdgeDescription]] = []

    def add(self, name: str) -> None:
        """Build a node, after all nodes that feed it except through back edges."""
        inputs: dict[str, list[Rows]] = {}
        for at, edge in enumerate(self._graph.edges):
            if edge.target == name:
                inputs.setdefault(edge.into, []).append(self._stream(at, edge))
        node = self._graph.nodes[name]
        made = BUILDERS[node.operator](BuildSite(self._flow, node, inputs, name in self._on_cycles))
        if isinstance(made, Mapping):
            for port, stream in made.items():
                self._made[name, port] = stream
        else:
            self._made[name, ""] = made

    def _stream(self, at: int, edge: EdgeDescription) -> Rows:
        if at not in self._back_edges:
            return self._from(edge)
        feedback = self._flow.feedback(object, distinct=False)
        self._feedbacks.append((feedback, edge))
        return feedback

    def _from(self, edge: EdgeDescription) -> Rows:
        # The outputs of a tee may be named, but are a single stream.
        out = edge.out if (edge.source, edge.out) in self._made else ""
        return self._made[edge.source, out]

    def closed(self, outputs: Iterable[str]) -> Flow:
        """Complete the flow: close feedbacks, and add a sink per output and for loose ends."""
        for feedback, edge in self._feedbacks:
            feedback.close(self._from(edge))
        for name in outputs:
            if (name, "") not in self._made:
                raise BadCase(f"the output {name!r} has several streams, and none without a name")
            self._flow.sink(name, self._made[name, ""])
        # If all streams lead into cycles, at least one sink is needed for anything to run.
        ends = [stream for (name, _), stream in self._made.items() if not self._graph.edges_out_of(name)]
        for stream in ends or [*self._made.values()][-1:]:
            stream.null()
        return self._flow
