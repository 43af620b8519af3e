"""Inlets and outlets: where a running flow reads from its sources, and is read from by its sinks."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph
    from penstock.io import Batch
    from penstock.io.files.dead_letters import DeadLetters
    from penstock.pull.edge import Edge
    from penstock.pull.protocol import AnswerTo, End
    from penstock.pull.stop_once import StopOnce


def ignore(_end: End | None, _value: Any = None, /) -> None:
    """For asks that are not made yet."""


@dataclass(eq=False, slots=True)
class Inlet:
    """One source of a running flow.

    readers: the names of the given sinks that its rows can reach.
    came:    what the ask is answered by.
    asked:   an ask pends. batch: what came, for the next tick.
    ended:   nothing more will come of it, by itself. unwanted: because the flow has stopped it.
    """

    name: str
    edge: Edge
    stop: StopOnce
    readers: frozenset[str]
    bounded: bool
    positions: MutableMapping[Any, Any] | None
    dead_letters: DeadLetters | None
    came: AnswerTo = ignore
    asked: bool = False
    batch: Batch | None = None
    ended: bool = False
    unwanted: bool = False


@dataclass(eq=False, slots=True)
class Outlet:
    """One given sink of a running flow.

    at_once: its two steps may be one. ask: what it asks with, while it waits. left: it has enough.
    rows:    what it is to be given when the tick is committed, where that is one step.
    """

    name: str
    append: bool
    at_once: bool
    edge: Edge = field(init=False)
    ask: AnswerTo | None = None
    left: bool = False
    rows: list[tuple[Any, ...]] | None = None


def readers_of(graph: FlowGraph, source: str, sinks: list[str]) -> frozenset[str]:
    """Those of the sinks that rows of a source can reach."""
    return frozenset(sink for sink in sinks if graph.sources[source] in _upstream(graph, graph.sinks[sink]))


def table_sources(graph: FlowGraph, append: Mapping[str, bool], sink: str) -> tuple[str, ...]:
    """The sources that reach a sink and may take rows back. append: by source whether it does not."""
    upstream = _upstream(graph, graph.sinks[sink])
    return tuple(name for name, node in graph.sources.items() if node in upstream and not append[name])


def _upstream(graph: FlowGraph, node: int) -> set[int]:
    found: set[int] = set()
    todo = [node]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo.extend(graph.nodes[at].inputs)
    return found
