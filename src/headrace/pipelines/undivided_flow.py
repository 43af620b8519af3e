"""Flow of a table over the inputs of the pipeline alone: the flows of shared parts in place of their rows.

A row of a table that reads a part is made from rows of what the part reads. Tables are planned with their
parts only; the flow without them is put together when somebody asks for a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headrace.flow.flow import Flow
from headrace.operators.endpoints import SourceOperator
from headrace.operators.feedback import FeedbackOperator
from headrace.pipelines.catalog import Position, Positions, TableEntry
from headrace.pipelines.definitions import SHARED, TableName
from headrace.pipelines.leaves import Leaf, TableLeaf
from headrace.pipelines.table_plan import ANSWER, TablePlan

if TYPE_CHECKING:
    from headrace.graph.node import Node


@dataclass(frozen=True, slots=True)
class ReadInput:
    """Input of a flow, and the position up to which a version of a table has read it."""

    leaf: Leaf
    position: Position | None

    def is_same(self, other: ReadInput) -> bool:
        """Return whether another one has the same rows, whichever part or table reads it."""
        return (self.leaf.exact, self.position) == (other.leaf.exact, other.position)


@dataclass(frozen=True, slots=True)
class UndividedFlow:
    """Flow of a table, with its inputs by the names of its sources. has_parts: whether parts are in it."""

    flow: Flow
    inputs: Mapping[str, ReadInput]
    has_parts: bool


def undivided_flow(
    plan: TablePlan,
    read: Positions,
    plans: Mapping[TableName, TablePlan],
    entries: Mapping[TableName, TableEntry],
) -> UndividedFlow | None:
    """Return the flow of a table without its parts; None of a table without a flow.

    read: positions of its inputs. plans, entries: of all tables. A part stays an input if its published
    version is not the one that was read, or was made by another query.
    """
    # Loaded at once: what a kept flow needs to be unpickled may be missing.
    flow = plan.loaded().flow
    if flow is None or plan.inputs is None:
        return None
    inputs = {name: ReadInput(leaf, read.get(leaf.key)) for name, leaf in plan.inputs.items()}
    composed = _Composition(Flow(flow.name), plans, entries)
    if not any(composed.part_at(each) for each in inputs.values()):
        return UndividedFlow(flow, inputs, has_parts=False)
    answer = flow.graph().nodes[flow.graph().sinks[ANSWER]]
    composed.flow.add_sink(ANSWER, composed.add(flow, inputs), answer.schema, answer.location)
    return UndividedFlow(composed.flow, composed.inputs, has_parts=True)


@dataclass(slots=True)
class _Composition:
    """A flow in the making. streams: those of its inputs, and of the parts that are in it."""

    flow: Flow
    plans: Mapping[TableName, TablePlan]
    entries: Mapping[TableName, TableEntry]
    inputs: dict[str, ReadInput] = field(default_factory=dict[str, ReadInput])
    streams: dict[str | TableName, Any] = field(default_factory=dict[str | TableName, Any])

    def part_at(self, given: ReadInput) -> tuple[TablePlan, TableEntry] | None:
        """Return the plan and the entry of the part that an input is, if its flow gives the rows read."""
        if not isinstance(given.leaf, TableLeaf) or given.leaf.name.database != SHARED:
            return None
        plan, entry = self.plans.get(given.leaf.name), self.entries.get(given.leaf.name)
        if plan is None or entry is None or not plan.inputs:
            return None
        same = (entry.fingerprint, entry.version) == (plan.fingerprint, given.position)
        return (plan, entry) if same else None

    def add(self, flow: Flow, inputs: Mapping[str, ReadInput]) -> Any:
        """Add the operators of another flow, and return the stream of its answer."""
        graph = flow.graph()
        streams: dict[int, Any] = {}
        feedbacks: list[Node] = []
        for node in graph.nodes:
            match node.operator:
                case SourceOperator():
                    streams[node.id] = self._source(node, node.operator, inputs.get(node.name))
                case FeedbackOperator():
                    streams[node.id] = self.flow.add_feedback(node.operator, node.schema, None, node.location)
                    feedbacks.append(node)
                case operator if node.id not in graph.sinks.values():
                    read = [streams[each] for each in node.inputs]
                    streams[node.id] = self.flow.add(operator, node.schema, read, None, node.location)
                case _:
                    pass
        for node in feedbacks:
            closing = streams[node.inputs[0]]
            self.flow.close_feedback(streams[node.id].node_id, closing.node_id, node.location)
        return streams[graph.nodes[graph.sinks[ANSWER]].inputs[0]]

    def _source(self, node: Node, operator: SourceOperator, given: ReadInput | None) -> Any:
        if given is None:  # The time of the tick.
            return self._stream(operator.name, operator, node)
        if (found := self.part_at(given)) is not None:
            return self._part(*found)
        name, number = operator.name, 1
        while not given.is_same(self.inputs.setdefault(name, given)):
            number += 1
            name = f"{operator.name}_{number}"
        return self._stream(name, replace(operator, name=name), node)

    def _stream(self, name: str, operator: SourceOperator, node: Node) -> Any:
        if name not in self.streams:
            self.streams[name] = self.flow.add_source(operator, node.location)
        return self.streams[name]

    def _part(self, plan: TablePlan, entry: TableEntry) -> Any:
        name, flow = plan.table.name, plan.loaded().flow
        if name not in self.streams:
            assert flow is not None
            (read,) = entry.positions.values()
            inputs = {each: ReadInput(leaf, read.get(leaf.key)) for each, leaf in (plan.inputs or {}).items()}
            self.streams[name] = self.add(flow, inputs)
        return self.streams[name]
