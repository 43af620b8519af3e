"""Event-time state of an engine between ticks: ended sources, late rows, watermarks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from headrace.engine.flow_parts import live_consumers
from headrace.errors import BadInput
from headrace.expr.types import Rows
from headrace.lowering.slot import Slot
from headrace.operators.event_time.late_rows import OnTime
from headrace.operators.event_time.watermark import EndOfInput

if TYPE_CHECKING:
    from headrace.engine.progress import Time
    from headrace.graph.node import FlowGraph
    from headrace.lowering.slot import SlotMapping


def end_receivers(graph: FlowGraph) -> dict[str, int]:
    """Return the nodes that receive a row when their sources have ended, by name."""
    return {node.name: node.id for node in graph.nodes if isinstance(node.operator, EndOfInput)}


def awaited_ends(graph: FlowGraph) -> dict[str, int]:
    """Return the nodes of `end_receivers` that lead to a sink or null; other ends start no tick."""
    consumers = live_consumers(graph)
    return {name: node for name, node in end_receivers(graph).items() if consumers[node]}


def end_slots(graph: FlowGraph) -> tuple[Slot, ...]:
    """Return one slot per awaited end: () -> names of the ended sources."""
    return tuple(Slot(f"{node}.ended") for node in awaited_ends(graph).values())


class EventTime:
    """Ended sources and counts of late rows. Both are part of the state, so a resumed run has them."""

    def __init__(self, graph: FlowGraph, state: Mapping[str, SlotMapping]) -> None:
        self._graph = graph
        self._slots = {name: state[f"{node}.ended"] for name, node in awaited_ends(graph).items()}
        self._clocks = {
            node.name: state[f"{node.id}.clock"]
            for node in graph.nodes
            if isinstance(node.operator, OnTime) and f"{node.id}.clock" in state
        }
        self.ended = {source for slot in self._slots.values() for source in slot.get(()) or ()}

    @property
    def awaited_sources(self) -> set[str]:
        """Sources that have not ended and whose end some operator awaits."""
        return {source for name in self._slots for source in self._sources(name)} - self.ended

    def end_sources(self, sources: Iterable[str]) -> dict[str, Rows]:
        """Mark `sources` as ended; return the rows that signal it, by name of the receiving node."""
        rows: dict[str, Rows] = {}
        self.ended |= set(sources)
        for name, slot in self._slots.items():
            before = slot.get(()) or ()
            now = tuple(source for source in self._sources(name) if source in self.ended)
            if now != before:
                slot[()] = now
                if now == self._sources(name):
                    rows[name] = [(True,)]
        return rows

    def check_not_ended(self, inputs: Mapping[str, Rows]) -> None:
        """Raise `BadInput` for rows from a source that has ended."""
        for name, rows in inputs.items():
            if rows and name in self.ended:
                raise more_after_the_end(self._graph, name)

    def late_rows(self) -> dict[str, int]:
        """Return the number of late rows, by name of the operator that detects them."""
        clocks = {name: slot.get(()) for name, slot in self._clocks.items()}
        return {name: 0 if clock is None else clock[2] for name, clock in clocks.items()}

    def watermarks(self) -> dict[str, Time]:
        """Return the current watermarks, by name of the operator that detects late rows, if it has any."""
        clocks = {name: slot.get(()) for name, slot in self._clocks.items()}
        return {name: clock[1] for name, clock in clocks.items() if clock is not None}

    def _sources(self, name: str) -> tuple[str, ...]:
        operator = self._graph.nodes[end_receivers(self._graph)[name]].operator
        assert isinstance(operator, EndOfInput)
        return operator.sources


def more_after_the_end(graph: FlowGraph, source: str) -> BadInput:
    """Create the error for rows from a source that has ended."""
    return BadInput(
        f"source {source!r} has ended, and brings more rows",
        where=[graph.nodes[graph.sources[source]].location],
        why="Windows were closed for good when it ended.",
        fix="end a source when nothing more will come; run(..., end=False) keeps it open",
        source=source,
    )
