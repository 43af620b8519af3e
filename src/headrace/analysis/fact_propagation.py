"""Propagation of facts through the flow, to the greatest solution.

Every stream starts with all facts and loses those that an operator upstream does not give. So a loop has the
facts of its entries, and loses none just because it feeds itself.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from headrace.graph.operator_declarations import Facts, meet

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph


def find_facts(graph: FlowGraph) -> tuple[Facts, ...]:
    """Compute the facts of each node's output, by node id."""
    facts = [meet(()) for _ in graph.nodes]
    consumers = graph.consumers()
    waiting = deque(range(len(graph.nodes)))
    queued = [True] * len(graph.nodes)
    while waiting:
        node = graph.nodes[waiting.popleft()]
        queued[node.id] = False
        # The meet only removes facts, so this terminates even for an operator whose `gives` is not monotone.
        found = meet((facts[node.id], node.operator.gives([facts[i] for i in node.inputs])))
        if found == facts[node.id]:
            continue
        facts[node.id] = found
        for edge in consumers[node.id]:
            if not queued[edge.target]:
                queued[edge.target] = True
                waiting.append(edge.target)
    return tuple(facts)
