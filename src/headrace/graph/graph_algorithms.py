"""Algorithms on small directed graphs: components, topological order, shortest paths.

A graph is given as its number of nodes and a list of successors per node. All algorithms are iterative, so
that a chain of 10,000 operators does not hit Python's stack limit.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def adjacency_lists(count: int, edges: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Build adjacency lists from pairs."""
    out: list[list[int]] = [[] for _ in range(count)]
    for source, target in edges:
        out[source].append(target)
    return out


def strongly_connected_components(graph: Sequence[Sequence[int]]) -> list[list[int]]:
    """Compute strongly connected components (Tarjan 1972), each sorted, in reverse topological order."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    result: list[list[int]] = []
    for start in range(len(graph)):
        if start in index:
            continue
        work = [(start, iter(graph[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            node, targets = work[-1]
            for target in targets:
                if target not in index:
                    index[target] = low[target] = len(index)
                    stack.append(target)
                    on_stack.add(target)
                    work.append((target, iter(graph[target])))
                    break
                if target in on_stack:
                    low[node] = min(low[node], index[target])
            else:
                work.pop()
                if work:
                    parent = work[-1][0]
                    low[parent] = min(low[parent], low[node])
                if low[node] == index[node]:
                    component: list[int] = []
                    while True:
                        member = stack.pop()
                        on_stack.discard(member)
                        component.append(member)
                        if member == node:
                            break
                    result.append(sorted(component))
    return result


def is_cyclic(component: Sequence[int], graph: Sequence[Sequence[int]]) -> bool:
    """Return whether a component holds a cycle: several nodes, or one with an edge to itself."""
    return len(component) > 1 or component[0] in graph[component[0]]


def topological_order(graph: Sequence[Sequence[int]]) -> list[int]:
    """Sort nodes topologically, least id first among free nodes (Kahn 1962).

    Only for acyclic graphs.
    """
    waiting = [0] * len(graph)
    for targets in graph:
        for target in targets:
            waiting[target] += 1
    free = [node for node, count in enumerate(waiting) if count == 0]
    heapq.heapify(free)
    order: list[int] = []
    while free:
        node = heapq.heappop(free)
        order.append(node)
        for target in graph[node]:
            waiting[target] -= 1
            if waiting[target] == 0:
                heapq.heappush(free, target)
    assert len(order) == len(graph), "the graph has a cycle"
    return order


def shortest_path(graph: Sequence[Sequence[int]], start: int, end: int) -> list[int] | None:
    """Return a shortest path from `start` to `end` of at least one edge, or None."""
    came_from: dict[int, int] = {}
    layer = [start]
    while layer:
        following: list[int] = []
        for node in layer:
            for target in graph[node]:
                if target == end:
                    path = [end, node]
                    while path[-1] != start:
                        path.append(came_from[path[-1]])
                    return path[::-1]
                if target not in came_from and target != start:
                    came_from[target] = node
                    following.append(target)
        layer = following
    return None
