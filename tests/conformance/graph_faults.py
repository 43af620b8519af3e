"""Faults in a case's graph, by the names used in error cases.

A graph has to pass one group of checks before the next, since for instance the ports of an unknown operator
cannot be checked. Within a group, the first kind of fault found is reported, with all its nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from headrace.graph.graph_algorithms import (
    adjacency_lists,
    is_cyclic,
    shortest_path,
    strongly_connected_components,
)
from tests.conformance.graph_description import EdgeDescription, GraphDescription, NodeDescription
from tests.conformance.operator_signatures import (
    LIFETIMES,
    SIGNATURES,
    Ends,
    UnnamedPorts,
    names_of,
)

CYCLE = "cycle through a blocking input"


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault in a graph. kind: its name in error cases. at: the nodes at fault.

    cycles: for a cycle through a blocking input, the shortest one through each such input, as nodes in stream
    order.
    """

    kind: str
    at: tuple[str, ...]
    note: str = ""
    cycles: tuple[tuple[str, ...], ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} at {', '.join(self.at)}" + (f" ({self.note})" if self.note else "")


Found = tuple[str, str, str]
"""Kind of a fault, its node, and its description."""


def fault_of(graph: GraphDescription) -> Fault | None:
    """Return the first fault of a graph, or None."""
    for check in (_nodes, _arguments, _lifetimes, _ports):
        found = list(check(graph))
        if found:
            kind, _, note = found[0]
            at = tuple(dict.fromkeys(node for k, node, _ in found if k == kind))
            return Fault(kind, at, note)
    return _blocking_cycle(graph)


# --- names, arguments, lifetimes ------------------------------------------------------------


def _nodes(graph: GraphDescription) -> Iterator[Found]:
    for node in graph.nodes.values():
        if node.operator not in SIGNATURES:
            yield "unknown operator", node.id, repr(node.operator)
    for edge in graph.edges:
        for end in (edge.source, edge.target):
            if end not in graph.nodes:
                yield "unknown node", end, "an edge names it"


def _arguments(graph: GraphDescription) -> Iterator[Found]:
    for node in graph.nodes.values():
        signature = SIGNATURES[node.operator]
        known = (*signature.arguments, *signature.optional)
        missing = [name for name in signature.arguments if name not in node.arguments]
        unknown = [name for name in node.arguments if name not in known]
        if missing or unknown:
            note = f"missing {', '.join(missing) or 'none'}, unknown {', '.join(unknown) or 'none'}"
            yield "wrong number of arguments", node.id, note


def _lifetimes(graph: GraphDescription) -> Iterator[Found]:
    for node in graph.nodes.values():
        allowed = SIGNATURES[node.operator].lifetimes
        if len(node.lifetimes) > allowed:
            yield "wrong number of lifetimes", node.id, f"at most {allowed}, got {len(node.lifetimes)}"
    for node in graph.nodes.values():
        for lifetime in node.lifetimes:
            if lifetime not in LIFETIMES:
                yield "unknown lifetime", node.id, repr(lifetime)
    for node in graph.nodes.values():
        allowed_here = SIGNATURES[node.operator].allowed
        for lifetime in node.lifetimes:
            if lifetime not in allowed_here:
                yield "unsupported lifetime", node.id, f"{lifetime!r}, only {', '.join(allowed_here)}"


# --- ports ----------------------------------------------------------------------------------


def _ports(graph: GraphDescription) -> Iterator[Found]:
    for node in graph.nodes.values():
        signature = SIGNATURES[node.operator]
        ends = [edge.into for edge in graph.edges_into(node.id)]
        yield from _side("input", signature.inputs, node, ends)
        ends = [edge.out for edge in graph.edges_out_of(node.id)]
        yield from _side("output", signature.outputs, node, ends)


def _side(side: str, ends: Ends, node: NodeDescription, used: list[str]) -> Iterator[Found]:
    names = names_of(ends, node, len(used))
    if names is None:
        assert isinstance(ends, UnnamedPorts)
        yield from _unnamed_side(side, ends, node, used)
        return
    for name in dict.fromkeys(used):
        if name not in names:
            shown = repr(name) if name else "one without a name"
            yield f"unknown {side} port", node.id, f"{shown}, not one of {', '.join(names)}"
    for name, times in Counter(used).items():
        if times > 1:
            yield f"{side} port connected twice", node.id, repr(name)
    for name in names:
        if name not in used:
            yield f"missing {side} port", node.id, repr(name)


def _unnamed_side(side: str, ends: UnnamedPorts, node: NodeDescription, used: list[str]) -> Iterator[Found]:
    # Ports of a variadic operator may have names, which have no meaning.
    if ends.most is not None:
        for name in used:
            if name:
                yield f"unknown {side} port", node.id, f"{name!r}: its {side} has no name"
    else:
        for name, times in Counter(name for name in used if name).items():
            if times > 1:
                yield f"{side} port connected twice", node.id, repr(name)
    if not (ends.least <= len(used) and (ends.most is None or len(used) <= ends.most)):
        wanted = str(ends.least) if ends.least == ends.most else f"{ends.least} to {ends.most}"
        yield f"wrong number of {side}s", node.id, f"{wanted}, got {len(used)}"


# --- cycles ---------------------------------------------------------------------------------


def same_tick(graph: GraphDescription) -> list[EdgeDescription]:
    """List the edges whose rows arrive in the tick in which they are sent."""
    return [e for e in graph.edges if not SIGNATURES[graph.nodes[e.target].operator].delayed]


def is_blocking(graph: GraphDescription, edge: EdgeDescription) -> bool:
    """Whether an edge leads to a blocking input."""
    return edge.into in SIGNATURES[graph.nodes[edge.target].operator].blocking


def on_cycles(graph: GraphDescription) -> dict[str, int]:
    """Map the nodes on cycles within a tick to a number per strongly connected component."""
    ids, links = _links(graph)
    knots = [knot for knot in strongly_connected_components(links) if is_cyclic(knot, links)]
    return {ids[n]: at for at, knot in enumerate(knots) for n in knot}


def _links(graph: GraphDescription) -> tuple[list[str], list[list[int]]]:
    ids = list(graph.nodes)
    number = {name: at for at, name in enumerate(ids)}
    return ids, adjacency_lists(len(ids), ((number[e.source], number[e.target]) for e in same_tick(graph)))


def _blocking_cycle(graph: GraphDescription) -> Fault | None:
    knots = on_cycles(graph)
    ids, links = _links(graph)
    number = {name: at for at, name in enumerate(ids)}
    at: list[str] = []
    cycles: list[tuple[str, ...]] = []
    for edge in same_tick(graph):
        inside = edge.source in knots and knots[edge.source] == knots.get(edge.target)
        if not (inside and is_blocking(graph, edge)):
            continue
        at.append(edge.target)
        source, target = number[edge.source], number[edge.target]
        path = [target] if source == target else shortest_path(links, target, source)
        assert path is not None, "both ends lie in one knot"
        cycles.append(tuple(ids[n] for n in path))
    if not at:
        return None
    return Fault(CYCLE, tuple(dict.fromkeys(at)), " -> ".join(cycles[0]), tuple(dict.fromkeys(cycles)))


def is_rotation(one: tuple[str, ...], other: tuple[str, ...]) -> bool:
    """Whether two cycles are equal up to their starting node."""
    return len(one) == len(other) and any(one[n:] + one[:n] == other for n in range(len(one)))
