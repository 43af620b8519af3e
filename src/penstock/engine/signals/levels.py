"""Where in a flow signals are.

Signals and streams may follow each other any number of times. The *level* of an
operator counts how often one turned into the other on the way to it. The signals of one
level are a *signal part*: for the streams around it one part, which reads rows and gives
rows; inside it has parts of its own. Levels never decrease, so signal parts make no circle.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.flow.operators.signals.last_row import LastRow
from penstock.flow.operators.signals.signal_operator import SignalOperator
from penstock.flow.operators.signals.value_rows import ValueRows
from penstock.flow.operators.sink import Sink
from penstock.graph.facts import Delay

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.graph.node import FlowGraph, Node


def is_among_signals(graph: FlowGraph, node: Node) -> bool:
    """Whether an operator is run by the machine of signals: signals, and where their values leave."""
    if isinstance(node.operator, SignalOperator | ValueRows):
        return True
    return isinstance(node.operator, Sink) and isinstance(
        graph.nodes[node.inputs[0]].operator, SignalOperator
    )


def levels(graph: FlowGraph, order: Sequence[int]) -> list[int]:
    """Per node, how often streams turned into signals and back on the way to it. order: of execution."""
    among = [is_among_signals(graph, node) for node in graph.nodes]
    found = [0] * len(among)
    if not any(among):
        return found
    for node_id in order:
        node = graph.nodes[node_id]
        for port, source in zip(node.operator.ports(), node.inputs, strict=True):
            if port.delay is Delay.NONE:
                turns = among[source] is not among[node_id] or isinstance(node.operator, LastRow)
                found[node_id] = max(found[node_id], found[source] + turns)
    return found
