"""Sinks as the driver sees them: gathered before the commit, published after it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from penstock.engine.change import Changes
from penstock.engine.ends import as_sink
from penstock.expr.rows import to_user
from penstock.io import Writer, changelog, open_sink, table_files
from penstock.io.changelog import Changelog
from penstock.io.sink import Drain
from penstock.io.table_files import TableFiles

if TYPE_CHECKING:
    from penstock.graph.node import FlowGraph

Rows: TypeAlias = list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Outlet:
    """An open sink of a run. target: data of `penstock.io`; durable: it must survive a power cut."""

    name: str
    target: object
    writer: Writer
    durable: bool

    def prepare(self, tick: int, files: list[str], rows: Rows) -> None:
        """Have the tick's output ready, where nobody looks: files of tasks, or rows."""
        if files:
            assemble(self.target, tick, files, self.durable)
        elif rows:
            self.writer.prepare(tick, rows)

    def publish(self, tick: int) -> None:
        self.writer.publish(tick)


@singledispatch
def assemble(target: object, tick: int, files: list[str], durable: bool) -> None:
    """Make one unpublished tick of files that tasks have staged."""
    raise NotImplementedError(type(target))


@assemble.register
def _(target: Changelog, tick: int, files: list[str], durable: bool) -> None:
    changelog.assemble(target.path, tick, files, durable=durable)


@assemble.register
def _(target: TableFiles, tick: int, files: list[str], durable: bool) -> None:
    table_files.assemble(target.path, tick, files, durable=durable)


def open_outlets(
    graph: FlowGraph, sinks: Mapping[str, Any], folder: Path, tick: int, durable: bool, closing: ExitStack
) -> dict[str, Outlet]:
    """Open the sinks that were asked for and have them recover to the committed tick.

    Raises `BadInput` for what is no sink, or holds ticks that this run cannot have written.
    """
    outlets: dict[str, Outlet] = {}
    for name, sink in sinks.items():
        target = as_sink(sink)
        schema = graph.nodes[graph.sinks[name]].schema
        user = to_user(schema)
        spool = folder / "outbox" / name if durable else None
        drain = Drain(name, schema, spool, lambda rows, user=user: Changes(rows, False, user))
        writer = open_sink(target, drain)
        closing.callback(writer.close)
        writer.recover(tick)
        outlets[name] = Outlet(name, target, writer, durable)
    return outlets
