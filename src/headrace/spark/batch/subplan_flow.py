"""Parts of a batch as flows of their own, run on the in-process engine inside a task.

A part has a source for each node that it reads, and a sink for each of its nodes that is read outside.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.expr.types import Rows
from headrace.graph.node import FlowGraph, Node
from headrace.graph.operator_declarations import Facts
from headrace.operators.sink import Sink
from headrace.operators.source import Source

if TYPE_CHECKING:
    from headrace.engine.machine import Machine
    from headrace.engine.program import Program
    from headrace.expr.types import Schema
    from headrace.spark.batch.batch_plan import BatchPlan, Subplan


_NONE = Facts()


@dataclass(frozen=True, slots=True)
class SubplanSource(Source):
    """Source of a subplan, with the facts known about its rows in the whole flow."""

    facts: Facts = _NONE

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return self.facts


@dataclass(frozen=True, slots=True)
class SubplanBorder:
    """A node of the flow whose rows enter or leave a subplan.

    ordered:  rows arrive in the order of their ordinals. weighted: rows have their weight last.
    """

    node: int
    name: str
    schema: Schema
    ordered: bool = False
    weighted: bool = False


@dataclass(frozen=True, slots=True)
class SubplanFlow:
    """A subplan as a flow of its own. ended: sources that receive a single null, the end of time."""

    graph: FlowGraph
    entries: tuple[SubplanBorder, ...]
    ended: tuple[str, ...]
    exits: tuple[SubplanBorder, ...]

    @property
    def ordered(self) -> bool:
        """Return whether any input arrives in the order of its ordinals."""
        return any(border.ordered for border in self.entries)


def subplan_flow(plan: BatchPlan, subplan: Subplan) -> SubplanFlow:
    """Cut a subplan out of a batch, keeping the facts about its inputs in the whole flow."""
    reads = {n: plan.reads[n] for n in subplan.nodes}
    outside = dict.fromkeys(i for r in reads.values() for i in r if i is not None and i not in reads)
    entries = tuple(_entry(plan, subplan, n, f"in{at}") for at, n in enumerate(outside))
    sources = [_source(e.name, e.schema, _entry_facts(plan, e)) for e in entries]
    return _cut_out(plan.graph, reads, entries, sources, plan.exits(subplan.nodes))


def loop_flow(graph: FlowGraph, loop: Sequence[int]) -> SubplanFlow:
    """Extract the nodes of a loop into a flow of their own."""
    reads = {n: graph.nodes[n].inputs for n in loop}
    outside = dict.fromkeys(i for r in reads.values() for i in r if i not in reads)
    entries = tuple(SubplanBorder(n, f"in{at}", graph.nodes[n].schema) for at, n in enumerate(outside))
    exits = [n for n in loop if any(n in m.inputs for m in graph.nodes if m.id not in reads)]
    return _cut_out(graph, reads, entries, [Source(e.name, e.schema) for e in entries], exits)


def _source(name: str, schema: Schema, facts: Facts) -> SubplanSource:
    return SubplanSource(name, schema, facts.bounded, facts.append, facts)


def _entry(plan: BatchPlan, subplan: Subplan, n: int, name: str) -> SubplanBorder:
    order = plan.order
    ordered = n in order.carried and any((n, m) in order.edges for m in subplan.nodes)
    return SubplanBorder(n, name, plan.graph.nodes[n].schema, ordered, ordered and not plan.facts[n].append)


def _entry_facts(plan: BatchPlan, entry: SubplanBorder) -> Facts:
    facts = plan.facts[entry.node]
    # A bag without weights: nothing of it is retracted, and its order is lost.
    return facts if entry.weighted else facts.but(append=True, ordered=facts.ordered and entry.ordered)


def _cut_out(
    graph: FlowGraph,
    reads: Mapping[int, Sequence[int | None]],
    entries: tuple[SubplanBorder, ...],
    sources: Sequence[Source],
    exits: Iterable[int],
) -> SubplanFlow:
    """Build a flow of the nodes in `reads`; an input of None becomes a source that ends at once."""
    nodes: list[Node] = []

    def add(like: int, operator: Source | Sink, inputs: tuple[int, ...] = ()) -> int:
        at, original = len(nodes), graph.nodes[like]
        nodes.append(Node(at, operator.name, operator, inputs, original.schema, original.location))
        return at

    at = {entry.node: add(entry.node, source) for entry, source in zip(entries, sources, strict=True)}
    ended: dict[tuple[int, int], int] = {}
    for n, read in reads.items():
        for port, i in enumerate(read):
            if i is None:
                time = graph.nodes[n].inputs[port]
                source = _source(f"end{len(nodes)}", graph.nodes[time].schema, Facts(ordered=True))
                ended[n, port] = add(time, source)
    at |= {n: len(nodes) + number for number, n in enumerate(reads)}
    given = {node.name: node.id for node in nodes}
    for n, read in reads.items():
        inputs = tuple(ended[n, port] if i is None else at[i] for port, i in enumerate(read))
        nodes.append(replace(graph.nodes[n], id=at[n], inputs=inputs))
    leaving = tuple(SubplanBorder(n, f"out{number}", graph.nodes[n].schema) for number, n in enumerate(exits))
    sinks = {border.name: add(border.node, Sink(border.name), (at[border.node],)) for border in leaving}
    whole = FlowGraph(graph.name, tuple(nodes), given, sinks, given_ticks=True)
    return SubplanFlow(whole, entries, tuple(sorted(nodes[n].name for n in ended.values())), leaving)


def program_of(graph: FlowGraph) -> Program:
    """Compile part of a flow to an in-process program."""
    from headrace.engine.program import compile_program

    return compile_program(graph)


def machine_for(program: Program) -> Machine:
    """Create a machine without state."""
    from headrace.engine.machine import Machine

    return Machine(program, {slot.name: {} for slot in program.slots})


def run_until_idle(machine: Machine, inputs: Mapping[str, Rows]) -> dict[str, Rows]:
    """Process `inputs`, deferred rows and the end of input; return the contents of the sinks."""
    from headrace.engine.event_time import end_receivers

    append = machine.program.sink_append
    held: dict[str, Rows] = {name: [] for name, is_append in append.items() if is_append}
    totals = {name: Counter[tuple[Any, ...]]() for name, is_append in append.items() if not is_append}
    ends: dict[str, Rows] = {name: [(True,)] for name in end_receivers(machine.program.graph)}
    given = inputs
    while True:
        for name, rows in machine.tick(given).items():
            if append[name]:
                held[name] += rows
            else:
                for *row, weight in rows:
                    totals[name][tuple(row)] += weight
        given = {}
        if not machine.pending:
            if not ends:
                return held | {name: list(total.elements()) for name, total in totals.items()}
            given, ends = ends, {}
