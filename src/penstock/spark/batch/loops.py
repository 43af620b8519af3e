"""Loops of a batch: they run in the in-process engine, inside one task.

The loop is cut out of the flow, with a source for each edge that enters it and a
sink for each node that is read outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

from penstock.flow.operators.sink import Sink
from penstock.flow.operators.source import Source
from penstock.graph.node import FlowGraph, Node
from penstock.spark.batch.machine import machine_for, program_of, until_quiet
from penstock.spark.batch.ports import Ports, of_port
from penstock.spark.batch.rounds import LoopBound, run_in_rounds, why_in_one_task
from penstock.spark.local.session_info import tasks_at_a_time
from penstock.spark.ticks.errors import told
from penstock.spark.ticks.plan import pickled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

    from penstock.spark.ticks.errors import Task

Rows = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class LoopFlow:
    """A loop cut out of a flow. entries: nodes read from outside; exits: nodes read by the outside."""

    graph: FlowGraph
    entries: tuple[int, ...]
    exits: tuple[int, ...]


def run_loop(
    graph: FlowGraph,
    group: Sequence[int],
    made: Mapping[int, DataFrame],
    share: Callable[[DataFrame], DataFrame],
    bound: LoopBound | None = None,
) -> dict[int, DataFrame]:
    """The bags of the nodes of a loop that are read outside of it.

    share: applied to what the loop answers where more than one of its nodes is read, and to what
           enters it where that is counted.
    bound: how many rows one task may have; more are counted, and go round in parts, at once. Without
           it all that enters comes to one task, whose memory must hold it with what follows from it.
    """
    part = cut_out(graph, group)
    entering, leaving = (
        Ports(tuple((graph.nodes[n].schema, False) for n in nodes)) for nodes in (part.entries, part.exits)
    )
    streams = [entering.tagged(made[node], port, {}) for port, node in enumerate(part.entries)]
    assert streams, "a loop that nothing enters has no rows"
    whole = reduce(lambda one, other: one.unionAll(other), streams)
    parts = 0
    if bound is not None and not why_in_one_task(part.graph):
        whole = share(whole)
        parts = bound.parts(whole.count(), tasks_at_a_time(whole.sparkSession))
    if bound is not None and parts:
        answer = run_in_rounds(part.graph, entering, leaving, whole, bound, parts)
    else:
        answer = whole.repartition(1).mapInArrow(_loop_task(part, entering, leaving), leaving.type())
        answer = share(answer) if len(part.exits) > 1 else answer
    return {node: of_port(answer, port, graph.nodes[node].schema) for port, node in enumerate(part.exits)}


def cut_out(graph: FlowGraph, group: Sequence[int]) -> LoopFlow:
    """The nodes of `group` as a flow of their own, with sources and sinks where edges were cut."""
    inside = set(group)
    entries = tuple(dict.fromkeys(i for n in group for i in graph.nodes[n].inputs if i not in inside))
    exits = tuple(n for n in group if any(n in m.inputs for m in graph.nodes if m.id not in inside))
    number = {node: at for at, node in enumerate((*entries, *group))}
    nodes = [
        Node(
            at,
            f"in{at}",
            Source(f"in{at}", graph.nodes[i].schema),
            (),
            graph.nodes[i].schema,
            graph.nodes[i].location,
        )
        for at, i in enumerate(entries)
    ]
    for n in group:
        node = graph.nodes[n]
        nodes.append(replace(node, id=number[n], inputs=tuple(number[i] for i in node.inputs)))
    sinks: dict[str, int] = {}
    for at, n in enumerate(exits):
        node = graph.nodes[n]
        sinks[f"out{at}"] = len(nodes)
        nodes.append(Node(len(nodes), f"out{at}", Sink(f"out{at}"), (number[n],), node.schema, node.location))
    sources = {f"in{at}": at for at in range(len(entries))}
    return LoopFlow(FlowGraph(graph.name, tuple(nodes), sources, sinks, given_ticks=True), entries, exits)


def _loop_task(part: LoopFlow, entering: Ports, leaving: Ports) -> Task:
    shipped = pickled((part.graph, entering, leaving))

    @told
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import cloudpickle

        graph, entering, leaving = cloudpickle.loads(shipped)
        inputs: dict[str, Rows] = {f"in{port}": [] for port in range(len(entering.streams))}
        for batch in batches:
            for port in range(len(entering.streams)):
                inputs[f"in{port}"] += entering.rows(batch, port)
        answers = until_quiet(machine_for(program_of(graph)), inputs)
        for port in range(len(leaving.streams)):
            yield from leaving.batches(answers[f"out{port}"], port)

    return task
