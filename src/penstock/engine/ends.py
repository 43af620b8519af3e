"""The ends of a run in this process: what its sources bring, where its changes go."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Iterable, Mapping, MutableMapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from inspect import isasyncgenfunction
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from penstock.engine.change import Changes
from penstock.engine.queue import PerSource, limit_of
from penstock.errors import BadInput
from penstock.expr.rows import to_user
from penstock.flow.operators.signals.signal_source import SignalSource
from penstock.flow.operators.source import Source as SourceOperator
from penstock.io import Batch, Call, Feed, Reader, SinkTarget, Source, Writer, open_sink, open_source
from penstock.io.dead_letter import DeadLetters
from penstock.io.files import Files
from penstock.io.sink import Drain

if TYPE_CHECKING:
    from penstock.engine.engine import Engine
    from penstock.graph.node import FlowGraph

Rows = list[tuple[Any, ...]]
AnySource = Source | Iterable[Any] | AsyncIterable[Any] | Callable[[], AsyncIterable[Any]]
AnySink = SinkTarget | list[Any] | Callable[[int, Sequence[Any]], object]

TICK_ROWS = 1000
"""How many rows a tick of a run takes from a source where nothing is said."""


def is_async(source: object) -> bool:
    """Whether an event loop must bring the rows of a source."""
    return isinstance(source, AsyncIterable) or isasyncgenfunction(source)


def positions_slot(source: str) -> str:
    """The name of the state slot that holds how far a source was taken."""
    return f"source.{source}"


def check_names(graph: FlowGraph, sources: Mapping[str, object], sinks: Mapping[str, object]) -> None:
    """Raises `BadInput` for names that the flow does not have, and for sources that are not given.

    A sink may be left out: nobody reads those changes.
    """
    for kind, given, known in (("source", sources, graph.sources), ("sink", sinks, graph.sinks)):
        for name in given:
            if name not in known:
                raise BadInput(
                    f"the flow {graph.name!r} has no {kind} {name!r}",
                    fix=f"its {kind}s are {', '.join(map(repr, known)) or 'none'}",
                    kind=kind,
                    name=name,
                )
    for name, node in graph.sources.items():
        if name not in sources:
            raise BadInput(
                f"nothing is given for source {name!r}",
                where=[graph.nodes[node].place],
                fix=f'sources={{"{name}": ...}} with JsonFiles(...), other files, or rows',
                source=name,
            )
        if isinstance(sources[name], str | bytes | PathLike | Mapping):
            # They can be iterated over, and never mean their characters or keys.
            raise BadInput(
                f"source {name!r} is given as {type(sources[name]).__name__}, which is no source",
                where=[graph.nodes[node].place],
                fix="give JsonFiles(path), CsvFiles(path), ParquetFiles(path), a list of rows, "
                "or what penstock.io.parse_source makes of a text such as 'json:path'",
                source=name,
            )


# --- sources -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Intake:
    """An open source. tick_rows: of a tick at most. bounded: it is read whole for the first one."""

    name: str
    reader: Reader
    bounded: bool
    tick_rows: int
    dead_letters: DeadLetters | None

    def read(self) -> Batch | None:
        return self.reader.read(None if self.bounded else self.tick_rows)


def open_sources(
    engine: Engine,
    sources: Mapping[str, AnySource],
    positions: Mapping[str, MutableMapping[Any, Any]],
    *,
    tick_rows: PerSource,
    follow: bool,
    durable: bool,
    closing: ExitStack,
) -> list[Intake]:
    """A reader per source, each closed by `closing`."""
    opened: list[Intake] = []
    for name, source in sources.items():
        node = engine.program.graph.nodes[engine.program.graph.sources[name]]
        operator = node.operator
        assert isinstance(operator, SourceOperator | SignalSource)
        bounded = isinstance(operator, SourceOperator) and operator.bounded
        feed = Feed(
            name,
            operator.schema,
            append=engine.program.source_append[name],
            follow=follow and not bounded,
            taken=positions[positions_slot(name)],
            from_user=partial(engine.internal_rows, name),
        )
        given: object = source
        if isasyncgenfunction(source):
            given = source()
        reader = open_source(given, feed)
        closing.callback(reader.close)
        # Each value of a signal is a tick of its own.
        rows = 1 if isinstance(operator, SignalSource) else limit_of(tick_rows, name) or TICK_ROWS
        opened.append(Intake(name, reader, bounded, rows, dead_letters_of(name, source, durable)))
    return opened


def dead_letters_of(name: str, source: AnySource, durable: bool) -> DeadLetters | None:
    if isinstance(source, Files) and source.dead_letter is not None:
        return DeadLetters(name, Path(source.dead_letter), durable)
    return None


# --- sinks ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outlet:
    """An open sink. append: the flow gives its rows without weights."""

    name: str
    writer: Writer
    append: bool

    def prepare(self, tick: int, rows: Rows) -> None:
        self.writer.prepare(tick, [(*row, 1) for row in rows] if self.append else rows)


def open_sinks(
    engine: Engine, sinks: Mapping[str, AnySink], checkpoint: Path | None, closing: ExitStack
) -> list[Outlet]:
    """A writer per sink, each closed by `closing`; not recovered yet."""
    opened: list[Outlet] = []
    for name, sink in sinks.items():
        schema = engine.program.graph.nodes[engine.program.graph.sinks[name]].schema
        user = to_user(schema)
        spool = None if checkpoint is None else checkpoint / "outbox" / name
        drain = Drain(name, schema, spool, lambda rows, user=user: Changes(rows, False, user))
        writer = open_sink(as_sink(sink), drain)
        closing.callback(writer.close)
        opened.append(Outlet(name, writer, engine.program.sink_append[name]))
    return opened


def as_sink(sink: AnySink) -> object:
    """Lists and functions as what they stand for."""
    if isinstance(sink, list):
        collected = cast("list[Any]", sink)
        return Call(lambda _tick, changes: collected.extend(changes))
    if callable(sink) and not isinstance(sink, SinkTarget):
        return Call(sink)
    return sink
