"""Sinks on the driver's side: prepared before the commit, published after it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.engine.change import Changes
from headrace.engine.endpoints import as_sink, table_sources
from headrace.expr.row_classes import to_user
from headrace.expr.types import Rows
from headrace.io import Writer, open_sink
from headrace.io.outbox import DeliveredSink
from headrace.io.sink import PartsWriter, SinkRequest
from headrace.spark.ticks.task_output import outbox_of

if TYPE_CHECKING:
    from headrace.graph.node import FlowGraph


@dataclass(frozen=True, slots=True)
class DriverSink:
    """An open sink of a run. target: data of `headrace.io`."""

    name: str
    target: object
    writer: Writer

    def prepare(self, tick: int, files: list[str], rows: Rows) -> None:
        """Stage the tick's output, invisible to readers: files of tasks, or rows."""
        if files:
            assert isinstance(self.writer, PartsWriter), "tasks write only for writers of parts"
            self.writer.assemble(tick, files)
        elif rows:
            self.writer.prepare(tick, rows)

    def publish(self, tick: int) -> None:
        self.writer.publish(tick)


def open_outlets(
    graph: FlowGraph,
    sinks: Mapping[str, Any],
    folder: Path,
    tick: int,
    durable: bool,
    closing: ExitStack,
    append: Mapping[str, bool],
    keep_ticks: int = 1,
) -> dict[str, DriverSink]:
    """Open the requested sinks and recover them to the committed tick.

    append:     by source whether its rows are never taken back.
    keep_ticks: of the checkpoint, see `SinkRequest`.

    Raises `BadInput` for what is no sink, or holds ticks that this run cannot have written.
    """
    outlets: dict[str, DriverSink] = {}
    for name, sink in sinks.items():
        target = as_sink(sink)
        schema = graph.nodes[graph.sinks[name]].schema
        user = to_user(schema)
        spool = outbox_of(folder, name) if durable or isinstance(target, DeliveredSink) else None
        sources = table_sources(graph, append, name)
        request = SinkRequest(
            name, schema, spool, lambda rows, user=user: Changes(rows, False, user), sources, keep_ticks
        )
        writer = open_sink(target, request)
        closing.callback(writer.close)
        writer.recover(tick)
        outlets[name] = DriverSink(name, target, writer)
    return outlets
