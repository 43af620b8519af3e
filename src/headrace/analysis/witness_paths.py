"""Witness paths of errors, shown as the user's source lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Step
from headrace.graph.graph_algorithms import adjacency_lists, shortest_path
from headrace.graph.operator_declarations import Delay

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from headrace.graph.node import Edge, FlowGraph, Node
    from headrace.graph.operator_declarations import Facts


def steps_by_location(nodes: Iterable[tuple[Node, str]]) -> list[Step]:
    """Make one step per source location, in order, with the notes of all nodes there.

    Operators chained on one line form a single step.
    """
    found: list[Step] = []
    for node, note in nodes:
        if found and found[-1].location == node.location:
            both = "; ".join(n for n in (found[-1].note, note) if n)
            found[-1] = Step(node.location, both)
        else:
            found.append(Step(node.location, note))
    return found


def cycle_through(edge: Edge, edges: Iterable[Edge], count: int) -> list[int]:
    """Return the shortest cycle that ends with `edge`, starting at a reader of its target.

    There must be one.
    """
    if edge.source == edge.target:
        return [edge.target]
    graph = adjacency_lists(count, ((e.source, e.target) for e in edges))
    path = shortest_path(graph, edge.target, edge.source)
    assert path is not None, "the edge is in no cycle"
    return [*path[1:], edge.target]


def cycle_across_ticks(graph: FlowGraph, edge: Edge, edges: Sequence[Edge]) -> list[int] | None:
    """Return a short cycle of `edges` that ends with `edge` and has a delay, or None."""
    following = adjacency_lists(len(graph.nodes), ((e.source, e.target) for e in edges))
    for late in edges:
        if graph.port(late).delay is Delay.NONE:
            continue
        there = _path(following, edge.target, late.source)
        back = _path(following, late.target, edge.source)
        if there is not None and back is not None:
            return [*there[1:], *back, edge.target]
    return None


def _path(following: Sequence[Sequence[int]], start: int, end: int) -> list[int] | None:
    return [start] if start == end else shortest_path(following, start, end)


def path_to_lost_fact(graph: FlowGraph, facts: Sequence[Facts], start: int, fact: str) -> list[int]:
    """Return the shortest path from the node that loses `fact` to `start`, whose output lacks it."""
    reader: dict[int, int | None] = {start: None}
    waiting = [start]
    for node_id in waiting:
        blamed = _blamed(graph.nodes[node_id], facts, fact)
        if not blamed:
            path = [node_id]
            while (onward := reader[path[-1]]) is not None:
                path.append(onward)
            return path
        for source in blamed:
            if source not in reader:
                reader[source] = node_id
                waiting.append(source)
    raise AssertionError("a fact is lost in a loop and by nobody in it")


def _blamed(node: Node, facts: Sequence[Facts], fact: str) -> list[int]:
    """Return the inputs from which the output inherits its lack of `fact`; none if the operator drops it."""
    lacking = [i for i in node.inputs if not getattr(facts[i], fact)]
    mended = [facts[i].but(**{fact: True}) for i in node.inputs]
    return lacking if getattr(node.operator.gives(mended), fact) else []
