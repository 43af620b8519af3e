"""Sources and sinks of an in-process run, as pull-streams.

Sources answer with batches (`headrace.io.source.Batch`), and sinks ask for the steps of ticks
(`headrace.io.pull_streams`). Whatever the user passes is converted to one of these.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import ExitStack
from dataclasses import dataclass, field
from inspect import isasyncgenfunction
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from headrace import pull
from headrace.engine.change import SinkChanges, unknown_sink
from headrace.engine.queue import PerSource, limit_for
from headrace.engine.row_intake import check_iterable, unknown_source
from headrace.errors import BadInput, SourceLocation, Step
from headrace.expr.expression_errors import check_function
from headrace.expr.row_classes import to_user
from headrace.expr.types import TIMESTAMP
from headrace.file_system import subfolder_for
from headrace.io import Call, Feed, SinkTarget, Source, open_sink, open_source
from headrace.io.in_process import TickTime
from headrace.io.keyed_tables import HeldBack
from headrace.io.pull_streams import (
    CloseOnce,
    CommittedTickDelivery,
    PendingPositions,
    group_into_batches,
    prefetch_rows,
    reader_source,
    writer_sink,
)
from headrace.io.sink import SinkRequest, Writer
from headrace.io.source import DeadLetters, dead_letter_folder
from headrace.operators.endpoints import TICK_TIME, KeyedSource, SourceOperator
from headrace.operators.signals.earlier_values import SignalSource

if TYPE_CHECKING:
    from headrace.engine.engine import Engine
    from headrace.graph.node import FlowGraph
    from headrace.io import Batch
    from headrace.pull.ask_buffer import StopOnce
    from headrace.pull.edge import PullEdge
    from headrace.pull.protocol import AnswerTo, End


def no_pending_ask(_end: End | None, _value: Any = None, /) -> None:
    """Placeholder callback while no ask is pending."""


@dataclass(eq=False, slots=True)
class SourceEndpoint:
    """A source of a running flow, with its pending ask and answer.

    readers: the names of the given sinks that its rows can reach.
    came:    what the ask is answered by.
    asked:   an ask pends. batch: what came, for the next tick.
    ended:   nothing more will come of it, by itself. unwanted: because the flow has stopped it.
    """

    name: str
    edge: PullEdge
    stop: StopOnce
    readers: frozenset[str]
    bounded: bool
    positions: MutableMapping[Any, Any] | None
    dead_letters: DeadLetters | None
    came: AnswerTo = no_pending_ask
    asked: bool = False
    batch: Batch | None = None
    ended: bool = False
    unwanted: bool = False


@dataclass(eq=False, slots=True)
class SinkEndpoint:
    """A sink of a running flow, given by the caller.

    at_once: whether both steps of a tick may be combined in one. ask: the pending ask, if the sink is
          waiting. left: whether the sink has ended.
    rows:    what it is to be given when the tick is committed, where that is one step.
    """

    name: str
    append: bool
    at_once: bool
    edge: PullEdge = field(init=False)
    ask: AnswerTo | None = None
    left: bool = False
    rows: list[tuple[Any, ...]] | None = None


def reachable_sinks(graph: FlowGraph, source: str, sinks: list[str]) -> frozenset[str]:
    """Return the sinks that a source's rows can reach."""
    return frozenset(sink for sink in sinks if graph.sources[source] in _upstream(graph, graph.sinks[sink]))


def table_sources(graph: FlowGraph, append: Mapping[str, bool], sink: str) -> tuple[str, ...]:
    """Return the sources that reach a sink and may retract rows. append: whether a source is append-only."""
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


AnySource = Source | Iterable[Any] | AsyncIterable[Any] | Callable[[], AsyncIterable[Any]] | pull.PullSource
AnySink = SinkTarget | list[Any] | Callable[[int, Sequence[Any]], object] | pull.PullSink

TICK_ROWS = 1000
"""Default limit on the rows that a tick takes from one source."""


def is_async(source: object) -> bool:
    """Return whether a source's rows need an event loop."""
    return isinstance(source, AsyncIterable) or isasyncgenfunction(source)


def positions_slot(source: str) -> str:
    """Return the name of the state slot for a source's position."""
    return f"source.{source}"


def with_tick_time(graph: FlowGraph, sources: Mapping[str, AnySource]) -> Mapping[str, AnySource]:
    """Return the sources of a run, with this machine's clock for a tick time source that is not given.

    Raises `BadInput` for sources without names.
    """
    _check_mapping("sources", sources, graph.sources)
    if TICK_TIME not in graph.sources or TICK_TIME in sources:
        return sources
    schema = graph.nodes[graph.sources[TICK_TIME]].schema
    is_time = schema.scalar and schema.fields[0].type == TIMESTAMP
    return {**sources, TICK_TIME: TickTime()} if is_time else sources


def check_names(
    graph: FlowGraph, sources: Mapping[str, object], sinks: Mapping[str, object], *, command: bool = False
) -> None:
    """Raise `BadInput` for unknown and missing sources, `UnknownSink` for unknown sinks.

    A sink may be omitted; its changes are then not read. command: errors show options of a command.
    """
    _check_mapping("sinks", sinks, graph.sinks)
    for name in sources:
        if name in graph.sinks and name not in graph.sources:
            raise _swapped("source", name, "sink", graph.nodes[graph.sinks[name]].location)
        if name not in graph.sources:
            raise unknown_source(name, graph.sources)
    for name, sink in sinks.items():
        if name in graph.sources and name not in graph.sinks:
            raise _swapped("sink", name, "source", graph.nodes[graph.sources[name]].location)
        if name not in graph.sinks:
            raise unknown_sink(name, graph.sinks)
        function = sink.function if isinstance(sink, Call) else sink
        if isinstance(sink, Call) or (callable(sink) and not isinstance(sink, SinkTarget | pull.PullSink)):
            check_function(f"sink {name!r}", function, ("tick", "changes"), SourceLocation.of_caller())
    for name, node in graph.sources.items():
        if name not in sources:
            raise BadInput(
                f"nothing is given for source {name!r}",
                where=[graph.nodes[node].location],
                fix=f"--source {name}=json:PATH, csv:PATH or another URI"
                if command
                else f'sources={{"{name}": ...}} with JsonFiles(...), other files, or rows',
                source=name,
            )
        if isinstance(sources[name], str | bytes | PathLike | Mapping):
            # They can be iterated over, and never mean their characters or keys.
            raise BadInput(
                f"source {name!r} is given as {type(sources[name]).__name__}, which is no source",
                where=[graph.nodes[node].location],
                fix="give JsonFiles(path), CsvFiles(path), ParquetFiles(path), a list of rows, "
                "or what headrace.io.parse_source makes of a text such as 'json:path'",
                source=name,
            )
        if isinstance(sources[name], Iterable):
            check_iterable(name, sources[name])
    _check_each_by_itself(graph, sources)
    _check_places(graph, sinks)


def _check_mapping(what: str, given: object, names: Mapping[str, int]) -> None:
    if isinstance(given, Mapping):
        return
    forms = ", ".join(f'"{name}": ...' for name in names if name != TICK_TIME)
    raise BadInput(
        f"{what} are given as {type(given).__name__}, which has no names",
        where=[SourceLocation.of_caller()],
        fix=f"{what}={{{forms}}}",
    )


def _swapped(given: str, name: str, declared: str, location: SourceLocation) -> BadInput:
    return BadInput(
        f"{name!r} is given as a {given}, but is a {declared} of the flow",
        where=[Step(location, f"{declared} {name!r}")],
        why="Rows enter by sources, and changes leave by sinks.",
        fix=f"give it as a {declared}: run(flow, sources, sinks); for a command --{declared} {name}=...",
        **{given: name},
    )


def _check_each_by_itself(graph: FlowGraph, sources: Mapping[str, object]) -> None:
    """Raise `BadInput` for an iterator given to two sources, which would split its rows."""
    drawn: dict[int, str] = {}
    for name, source in sources.items():
        if isinstance(source, Iterator | AsyncIterator):
            other = drawn.setdefault(id(cast("object", source)), name)
            if other != name:
                raise BadInput(
                    f"sources {other!r} and {name!r} are given the same iterator",
                    where=[graph.nodes[graph.sources[name]].location],
                    why="It gives each row once: to the one or to the other.",
                    fix="make one for each, or give a list; or one source, which the flow may read twice",
                    source=name,
                )


# --- sources -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OpenSource:
    """A source opened for a run.

    stream:    answers the batch of a tick to each ask.
    bounded:   all its rows belong to the first tick.
    positions: where a tick records those of its batches; None if no run resumes from them.
    """

    name: str
    stream: pull.PullSource
    bounded: bool
    positions: MutableMapping[Any, Any] | None
    dead_letters: DeadLetters | None


def open_sources(
    engine: Engine,
    sources: Mapping[str, AnySource],
    slots: Mapping[str, MutableMapping[Any, Any]] | None,
    *,
    tick_rows: PerSource,
    follow: bool,
    closing: ExitStack,
    resumed: bool = False,
    skip: frozenset[str] = frozenset(),
) -> list[OpenSource]:
    """Open the sources of a run, to be closed by `closing`.

    slots:   of the checkpoint, if there is one.
    resumed: the run goes on from a committed tick.
    skip:    files to leave out, as absolute paths.
    """
    opened: list[OpenSource] = []
    for name, source in sources.items():
        node = engine.program.graph.nodes[engine.program.graph.sources[name]]
        operator = node.operator
        assert isinstance(operator, SourceOperator | SignalSource)
        source = as_read_by(operator, source)
        bounded = isinstance(operator, SourceOperator) and operator.bounded
        positions = None if slots is None else slots[positions_slot(name)]
        feed = Feed(
            name,
            operator.schema,
            append=engine.program.source_append[name],
            follow=follow and not bounded,
            taken={} if positions is None else PendingPositions(positions),
            resumed=resumed,
            skip=skip,
            from_user=engine.intake_of(name),
            live=engine.columns_read(name),
            next_due=engine.next_due,
        )
        # Each value of a signal is a tick of its own.
        rows = 1 if isinstance(operator, SignalSource) else limit_for(tick_rows, name) or TICK_ROWS
        stream = _batches(source, feed, None if bounded else rows, closing)
        letters = dead_letters_of(name, source, durable=slots is not None)
        opened.append(OpenSource(name, stream, bounded, positions, letters))
    return opened


def as_read_by(operator: object, source: Any) -> Any:
    """Wrap a user's source for its operator: a keyed table reads it by key. Raises `BadInput`."""
    if not isinstance(operator, KeyedSource):
        return source
    # Imported here, so that flows without such tables need not load it.
    from headrace.io.keyed_records import record_source

    return record_source(source, operator.name, operator.keyed)


def _batches(source: Any, feed: Feed, limit: int | None, closing: ExitStack) -> pull.PullSource:
    if isasyncgenfunction(source):
        source = source()
    if isinstance(source, pull.PullSource):
        return pull.pull(source, group_into_batches(feed, limit))
    if isinstance(source, AsyncIterable):
        return pull.pull(
            prefetch_rows(cast("AsyncIterable[Any]", source), limit), group_into_batches(feed, limit)
        )
    reader = open_source(source, feed)
    close = CloseOnce(reader.close)
    closing.callback(close)
    ahead = feed.taken if isinstance(feed.taken, PendingPositions) else None
    return reader_source("reader", reader, limit, close, ahead)


def dead_letters_of(name: str, source: AnySource, durable: bool) -> DeadLetters | None:
    folder = dead_letter_folder(source)
    return None if folder is None else DeadLetters(name, Path(folder), durable)


# --- sinks ---------------------------------------------------------------------------


def _check_places(graph: FlowGraph, sinks: Mapping[str, object]) -> None:
    """Raise `BadInput` for two sinks with the same target."""
    taken: dict[object, str] = {}
    for name, sink in sinks.items():
        place = sink.destination if isinstance(sink, SinkTarget) else None
        other = name if place is None else taken.setdefault(place, name)
        if other != name:
            raise BadInput(
                f"sinks {other!r} and {name!r} go to the same place",
                where=[graph.nodes[graph.sinks[name]].location],
                why="What one has written there of a tick would be taken for the other's, and that be lost.",
                fix="give each a place of its own, or make one stream of both: a.union(b)",
                sink=name,
            )


@dataclass(frozen=True, slots=True)
class OpenSink:
    """A sink opened for a run.

    stream:      asks for the steps of ticks.
    recover:     is to be called once, before it runs, with the last committed tick.
    append:      the flow gives its rows without weights.
    only_holds:  see `Writer`.
    writer:      what writes to it; None for a pull-stream, which ends with something for the user.
    """

    name: str
    stream: pull.PullSink
    recover: Callable[[int], object]
    append: bool
    only_holds: bool
    writer: Writer | None


def open_sinks(
    engine: Engine, sinks: Mapping[str, AnySink], checkpoint: Path | None, closing: ExitStack
) -> list[OpenSink]:
    """Open the sinks of a run, without recovering them yet. `closing` closes everything opened."""
    keep_ticks = 1
    if checkpoint is not None:
        # Not at the top, because runs without a checkpoint need no state.
        from headrace.state.commit import KEEP_TICKS

        keep_ticks = KEEP_TICKS
    opened: list[OpenSink] = []
    for name, sink in sinks.items():
        schema = engine.program.graph.nodes[engine.program.graph.sinks[name]].schema
        append = engine.program.sink_append[name]
        user = to_user(schema)
        spool = None if checkpoint is None else subfolder_for(checkpoint / "outbox", name)
        sources = table_sources(engine.program.graph, engine.program.source_append, name)
        request = SinkRequest(
            name, schema, spool, lambda rows, user=user: SinkChanges(rows, False, user), sources, keep_ticks
        )
        if isinstance(sink, pull.PullSink):
            handover = CommittedTickDelivery(request)
            stream = pull.pull(handover.transformer(), sink)
            opened.append(OpenSink(name, stream, handover.recover, append, handover.only_holds, None))
            continue
        writer = open_sink(as_sink(sink), request)
        close = CloseOnce(writer.close)
        closing.callback(close)
        stream = writer_sink("writer", writer, close)
        opened.append(OpenSink(name, stream, writer.recover, append, writer.only_holds, writer))
    return opened


def held_back_by(writers: Mapping[str, Writer]) -> dict[str, HeldBack]:
    """Return the report of held-back rows for each table sink that has any."""
    found = {name: writer.held_back() for name, writer in writers.items()}
    return {name: held for name, held in found.items() if held is not None}


def as_sink(sink: AnySink) -> object:
    """Convert lists and functions to sinks."""
    if isinstance(sink, list):
        collected = cast("list[Any]", sink)
        return Call(lambda _tick, changes: collected.extend(changes))
    if callable(sink) and not isinstance(sink, SinkTarget):
        return Call(sink)
    return sink
