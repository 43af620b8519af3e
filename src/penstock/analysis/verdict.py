"""What may be said of a sink's answers across processes and across time."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.graph.facts import Facts
    from penstock.graph.node import FlowGraph


class Verdict(Enum):
    """How much agreement a sink's answers need."""

    NO_COORDINATION = "needs no coordination"
    DETERMINISTIC = "deterministic and live"
    GIVEN_TICKS = "follows its ticks"
    GUARDED = "depends on the cut into ticks"


def find_verdicts(graph: FlowGraph, facts: Sequence[Facts]) -> dict[str, Verdict]:
    """Per sink: no coordination where all before it only grows, is deterministic and reads no order."""
    return {name: _verdict(graph, facts, sink) for name, sink in graph.sinks.items()}


def _verdict(graph: FlowGraph, facts: Sequence[Facts], sink: int) -> Verdict:
    if not facts[sink].det:
        return Verdict.GUARDED
    if any(graph.nodes[node].operator.begins_ticks for node in upstream(graph, sink)):
        return Verdict.GIVEN_TICKS
    before = upstream(graph, sink)
    grows = all(facts[node].append and facts[node].det for node in before)
    if grows and not any(_reads_order(graph, node) for node in before):
        return Verdict.NO_COORDINATION
    return Verdict.DETERMINISTIC


def _reads_order(graph: FlowGraph, node: int) -> bool:
    """Whether an operator answers from the order of its rows, which those who share the work must keep."""
    return any(need.fact == "ordered" for need in graph.nodes[node].operator.needs())


def upstream(graph: FlowGraph, node: int) -> set[int]:
    """`node` and all that leads to it, delays included."""
    found = {node}
    waiting = [node]
    while waiting:
        for source in graph.nodes[waiting.pop()].inputs:
            if source not in found:
                found.add(source)
                waiting.append(source)
    return found
