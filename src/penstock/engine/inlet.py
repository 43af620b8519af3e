"""Inlets and outlets: where a running flow reads from its sources, and is read from by its sinks."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph
    from penstock.io import Batch
    from penstock.io.dead_letter import DeadLetters
    from penstock.pull.edge import Edge
    from penstock.pull.protocol import AnswerTo
    from penstock.pull.stop_once import StopOnce


@dataclass(eq=False, slots=True)
class Inlet:
    """One source of a running flow.

    readers: the names of the given sinks that its rows can reach.
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
    asked: bool = False
    batch: Batch | None = None
    ended: bool = False
    unwanted: bool = False


@dataclass(eq=False, slots=True)
class Outlet:
    """One given sink of a running flow. ask: what it asks with, while it waits. left: it has enough."""

    name: str
    edge: Edge
    append: bool
    ask: AnswerTo | None = None
    left: bool = False


def readers_of(graph: FlowGraph, source: str, sinks: list[str]) -> frozenset[str]:
    """Those of the sinks that rows of a source can reach."""
    return frozenset(sink for sink in sinks if graph.sources[source] in _upstream(graph, graph.sinks[sink]))


def _upstream(graph: FlowGraph, node: int) -> set[int]:
    found: set[int] = set()
    todo = [node]
    while todo:
        at = todo.pop()
        if at not in found:
            found.add(at)
            todo.extend(graph.nodes[at].inputs)
    return found
