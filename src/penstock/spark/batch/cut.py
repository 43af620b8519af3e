"""A subplan cut out of a flow: a flow of its own, with sources and sinks where edges were cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.flow.operators.sink import Sink
from penstock.flow.operators.source import Source
from penstock.graph.facts import Facts
from penstock.graph.node import FlowGraph, Node

if TYPE_CHECKING:
    from penstock.expr.types import Schema
    from penstock.spark.batch.plan import BatchPlan, Subplan


_NONE = Facts()


@dataclass(frozen=True, slots=True)
class Entry(Source):
    """Where rows enter a subplan: a source with the facts that they have in the whole flow."""

    facts: Facts = _NONE

    def gives(self, inputs: Sequence[Facts]) -> Facts:
        return self.facts


@dataclass(frozen=True, slots=True)
class Border:
    """A node of the flow whose rows enter a subplan, or leave it.

    ordered:  they come in the order of their ordinals. weighted: with their weight last.
    """

    node: int
    name: str
    schema: Schema
    ordered: bool = False
    weighted: bool = False


@dataclass(frozen=True, slots=True)
class SubplanFlow:
    """A subplan as a flow of its own. ended: sources that are given one null, the end of time."""

    graph: FlowGraph
    entries: tuple[Border, ...]
    ended: tuple[str, ...]
    exits: tuple[Border, ...]

    @property
    def ordered(self) -> bool:
        """Whether rows of it come in the order of their ordinals."""
        return any(border.ordered for border in self.entries)


def part_of(plan: BatchPlan, subplan: Subplan) -> SubplanFlow:
    """A subplan cut out: with a source per node that it reads, and a sink per node that is read outside."""
    return _Cutter(plan, subplan).part()


class _Cutter:
    def __init__(self, plan: BatchPlan, subplan: Subplan) -> None:
        self._plan, self._subplan = plan, subplan
        self._nodes: list[Node] = []
        self._sources: dict[str, int] = {}
        self._sinks: dict[str, int] = {}

    def part(self) -> SubplanFlow:
        graph, inside = self._plan.graph, self._subplan.nodes
        reads = {n: self._plan.reads[n] for n in inside}
        outside = dict.fromkeys(i for r in reads.values() for i in r if i is not None and i not in reads)
        entries = tuple(self._border(i, at) for at, i in enumerate(outside))
        at_entry = {entry.node: self._enter(entry) for entry in entries}
        ended = {(n, port): self._end(graph.nodes[graph.nodes[n].inputs[port]])
                 for n, r in reads.items() for port, i in enumerate(r) if i is None}  # fmt: skip
        at = at_entry | {n: len(self._nodes) + number for number, n in enumerate(inside)}
        for n, read in reads.items():
            inputs = tuple(ended[n, port] if i is None else at[i] for port, i in enumerate(read))
            self._nodes.append(replace(graph.nodes[n], id=at[n], inputs=inputs))
        exits = tuple(
            Border(n, f"out{number}", graph.nodes[n].schema)
            for number, n in enumerate(self._plan.exits(inside))
        )
        for leaving in exits:
            self._leave(leaving, at[leaving.node])
        whole = FlowGraph(graph.name, tuple(self._nodes), self._sources, self._sinks, given_ticks=True)
        names = {self._nodes[number].name for number in ended.values()}
        return SubplanFlow(whole, entries, tuple(sorted(names)), exits)

    def _border(self, n: int, number: int) -> Border:
        order, node = self._plan.order, self._plan.graph.nodes[n]
        ordered = n in order.carried and any((n, m) in order.edges for m in self._subplan.nodes)
        weighted = ordered and not self._plan.facts[n].append
        return Border(n, f"in{number}", node.schema, ordered, weighted)

    def _enter(self, entry: Border) -> int:
        facts = self._plan.facts[entry.node]
        if not entry.weighted:
            # A bag: nothing of it is taken back, and its order is lost.
            facts = facts.but(append=True, ordered=facts.ordered and entry.ordered)
        return self._add_source(entry.name, entry.schema, facts, self._plan.graph.nodes[entry.node])

    def _end(self, time: Node) -> int:
        return self._add_source(f"end{len(self._nodes)}", time.schema, Facts(ordered=True), time)

    def _add_source(self, name: str, schema: Schema, facts: Facts, node: Node) -> int:
        number = self._sources[name] = len(self._nodes)
        operator = Entry(name, schema, facts.bounded, facts.append, facts)
        self._nodes.append(Node(number, name, operator, (), schema, node.location))
        return number

    def _leave(self, leaving: Border, number: int) -> None:
        at = self._sinks[leaving.name] = len(self._nodes)
        location = self._nodes[number].location
        self._nodes.append(Node(at, leaving.name, Sink(leaving.name), (number,), leaving.schema, location))
