"""Division of a flow into parts, each compiled to one function.

Signals and streams may alternate any number of times. The *level* of an operator counts the conversions
between them on the way to it. The signals of one level form a *signal part*: to the streams around it, a part
that reads and emits rows; inside, it has parts of its own. Levels never decrease, so signal parts form no
cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from headrace.graph.operator_declarations import Delay
from headrace.operators.endpoints import SinkOperator, SourceOperator
from headrace.operators.event_time.watermark import EndOfInput
from headrace.operators.signals.earlier_values import LastRow, SignalSource, ValueRows
from headrace.operators.signals.lift import SignalOperator

if TYPE_CHECKING:
    from collections.abc import Sequence

    from headrace.analysis import Analysis
    from headrace.graph.node import Consumers, FlowGraph, Node


class PartSchedule(Enum):
    """Granularity of a flow's parts, and selection of the parts that a tick runs.

    HYBRID:  a part per region; those with input run.
    DYNAMIC: a part per operator; those with input run.
    STATIC:  a part per operator; all run.

    The answers and what is activated are the same; the last two are there to compare with.
    """

    HYBRID = "hybrid"
    DYNAMIC = "dynamic"
    STATIC = "static"


@dataclass(frozen=True, slots=True)
class CompiledPart:
    """Operators compiled to one function, with one activation condition.

    nodes:   in execution order.
    inputs:  nodes outside whose rows it reads; it runs in a tick if one of them has any.
    outputs: nodes in it whose rows others read, and sinks.
    runs_each_tick: whether the part runs in every tick, even without input.
    begins:  whether the part runs in a machine's first tick, even without input.
    signals: whether it is a part of signals, which are compiled separately.
    """

    function: str
    nodes: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    runs_each_tick: bool
    begins: bool
    signals: bool = False


def is_given(node: Node) -> bool:
    """Return whether a node's rows are known at the start of a tick, as for a source or a delay."""
    return isinstance(node.operator, SourceOperator | SignalSource | EndOfInput) or node.is_delay


def is_lazy(node: Node) -> bool:
    """Return whether rows held by a delay do not start a tick by themselves."""
    return any(port.delay is Delay.LAZY for port in node.operator.ports())


def plan_parts(
    graph: FlowGraph, analysis: Analysis, consumers: Consumers, schedule: PartSchedule = PartSchedule.HYBRID
) -> tuple[CompiledPart, ...]:
    """Divide a flow into parts, ordered so that each can run completely before the next.

    consumers: what `live_consumers` gives.

    Sources and delays are no part of any: their rows are given to the tick. Nor is
    what leads to no sink. A chain that works row by row and ends in one other
    region is compiled into that one, where its rows need no buffer.
    """
    if schedule is PartSchedule.HYBRID:
        head_of = _region_heads(graph, analysis, consumers)
    else:
        head_of = _single_heads(graph, analysis, consumers)
    level = node_levels(graph, analysis.execution_order())
    _part_from_signals(graph, analysis, level, head_of)
    members: dict[int, list[int]] = {}
    for node_id in sorted(head_of, key=analysis.ranks.__getitem__):
        members.setdefault(head_of[node_id], []).append(node_id)
    # A merged chain runs with the region it was merged into, so that region's own head gives the place.
    order = sorted(members, key=lambda head: (level[head], analysis.ranks[head]))
    return tuple(_part(graph, at, members[head], consumers) for at, head in enumerate(order))


def _part_from_signals(
    graph: FlowGraph, analysis: Analysis, level: Sequence[int], head_of: dict[int, int]
) -> None:
    """Put each level's signals in one part, and their readers in separate parts."""
    parts: dict[int, int] = {}
    shores: dict[tuple[int, int], int] = {}
    for node in sorted(head_of, key=analysis.ranks.__getitem__):
        head = head_of[node]
        if is_among_signals(graph, graph.nodes[node]):
            head_of[node] = parts.setdefault(level[node], node)
        elif is_among_signals(graph, graph.nodes[head]) or level[head] != level[node]:
            head_of[node] = shores.setdefault((head, level[node]), node)


def live_consumers(graph: FlowGraph) -> Consumers:
    """Return the edges from each node towards a sink or null."""
    live = {*graph.sinks.values(), *(n.id for n in graph.nodes if n.operator.ends_streams)}
    waiting = list(live)
    while waiting:
        for source in graph.nodes[waiting.pop()].inputs:
            if source not in live:
                live.add(source)
                waiting.append(source)
    return tuple(tuple(e for e in edges if e.target in live) for edges in graph.consumers())


def _region_heads(graph: FlowGraph, analysis: Analysis, consumers: Consumers) -> dict[int, int]:
    """Return the head of each node's region."""
    head_of: dict[int, int] = {}
    for region in analysis.regions:
        for node_id in region.nodes:
            if _is_compiled(graph.nodes[node_id], consumers):
                head_of[node_id] = region.head
    # Downstream first: a chain behind a chain follows it to where that one went.
    for region in reversed(analysis.regions):
        nodes = [n for n in region.nodes if n in head_of]
        leaving = {e for n in nodes for e in consumers[n] if e.target not in nodes}
        row_by_row = all(graph.nodes[n].operator.row_by_row for n in nodes)
        if not nodes or not row_by_row or len(leaving) != 1:
            continue
        (edge,) = leaving
        if graph.port(edge).delay is Delay.NONE:
            for node_id in nodes:
                head_of[node_id] = head_of[edge.target]
    return head_of


def _single_heads(graph: FlowGraph, analysis: Analysis, consumers: Consumers) -> dict[int, int]:
    """Return the head of each node's own part, shared by the nodes of a loop."""
    loop_of = {node: loop[0] for loop in analysis.loops for node in loop}
    return {n.id: loop_of.get(n.id, n.id) for n in graph.nodes if _is_compiled(n, consumers)}


def _is_compiled(node: Node, consumers: Consumers) -> bool:
    leads_somewhere = (
        consumers[node.id] or isinstance(node.operator, SinkOperator) or node.operator.ends_streams
    )
    return bool(leads_somewhere) and not is_given(node)


def _part(graph: FlowGraph, at: int, nodes: list[int], consumers: Consumers) -> CompiledPart:
    inside = set(nodes)
    inputs: list[int] = []
    for node_id in nodes:
        for source in graph.nodes[node_id].inputs:
            if source not in inside and source not in inputs:
                inputs.append(source)
    signals = is_among_signals(graph, graph.nodes[nodes[0]])
    if signals and at == 0:
        # Who subscribes later may read sources that nothing reads yet.
        unread = (n.id for n in graph.nodes if isinstance(n.operator, SignalSource) and not consumers[n.id])
        inputs.extend(unread)
    outputs = [
        n
        for n in nodes
        if isinstance(graph.nodes[n].operator, SinkOperator)
        or any(e.target not in inside for e in consumers[n])
    ]
    runs_each_tick = any(graph.nodes[n].operator.runs_each_tick for n in nodes)
    begins = any(graph.nodes[n].operator.runs_first_tick for n in nodes)
    return CompiledPart(
        f"region_{at}", tuple(nodes), tuple(inputs), tuple(outputs), runs_each_tick, begins, signals
    )


def is_among_signals(graph: FlowGraph, node: Node) -> bool:
    """Return whether an operator runs on the signal machine: a signal, or the sink or rows of one."""
    if isinstance(node.operator, SignalOperator | ValueRows):
        return True
    return isinstance(node.operator, SinkOperator) and isinstance(
        graph.nodes[node.inputs[0]].operator, SignalOperator
    )


def node_levels(graph: FlowGraph, order: Sequence[int]) -> list[int]:
    """Return the level of each node. order: the nodes in execution order."""
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
