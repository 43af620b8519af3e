"""A new checkpoint from the sources for sinks that stay and get only what differs from their rows.

The run over the sources writes its *answers* beside the new checkpoint. What the sinks hold is compared with
them, and the difference prepared in the sinks as one more tick, which the new checkpoint has as its last. So
the exchange of the checkpoint (`headrace.engine.rebuild`) commits that tick: before it, whoever opens the
sinks drops what is prepared, and after it, publishes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.analysis import Verdict, analyse
from headrace.analysis.checks import ancestors_of, path_to_lost_fact, steps_by_location
from headrace.engine.endpoints import held_back_by, open_sinks
from headrace.engine.engine import Engine
from headrace.engine.rebuild import (
    aside_of,
    building,
    check_dead_letters,
    finish_rebuild,
    folder_in_use,
    moved_to,
)
from headrace.errors import BadInput
from headrace.expr.value_keys import with_representatives
from headrace.file_system import FolderLock, local_path, remove_folder, subfolder_for
from headrace.io import DeltaChangelog, DeltaTable, PostgresChangelog, PostgresTable, TickTime, WallClock
from headrace.io.files.changelog import Changelog, CsvChangelog
from headrace.io.files.table_files import TableFiles
from headrace.io.keyed_tables import consolidate_rows
from headrace.io.outbox import BATCH_ROWS
from headrace.io.sink import ReadableWriter
from headrace.io.source import WEIGHT
from headrace.operators.endpoints import TICK_TIME
from headrace.state.checkpoint import Checkpoint
from headrace.state.commit import CommitLog
from headrace.state.manifest import as_it_is
from headrace.tables.version_folders import TICK

if TYPE_CHECKING:
    from headrace.engine.progress import RunResult
    from headrace.expr.types import Schema
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph

_READABLE = (Changelog, TableFiles, DeltaTable, DeltaChangelog, PostgresTable, PostgresChangelog)
Sums: TypeAlias = dict[tuple[Any, ...], int]


def adopt(
    flow: Flow,
    checkpoint: str | os.PathLike[str],
    sources: Mapping[str, Any],
    sinks: Mapping[str, Any],
    run: Callable[[str, Mapping[str, Any]], RunResult],
) -> RunResult:
    """Run a flow into a new checkpoint, and write to its sinks only what differs from the rows they hold.

    run: like that of `rebuild`, and with the same conditions for sources and the checkpoint.
    Returns the run's result, with the changes that were written to the sinks.

    Raises like `rebuild`; and `BadInput` for a sink that cannot be read back, was never written, or holds
    rows of another type, for rows that depend on ticks, and if no sink is given or no source has a row.
    """
    target = Path(os.path.realpath(local_path(checkpoint, "checkpoint")))
    finish_rebuild(target)
    check_dead_letters(sources)
    _check_adoptable(flow.graph(), sources, sinks)
    kept_folders = [
        Path(os.path.realpath(s.path)) for s in sinks.values() if isinstance(s, Changelog | TableFiles)
    ]
    engine, aside = Engine(flow), aside_of(target)
    answers = {
        name: _answer(sink, _schema(engine, name), subfolder_for(aside / "answers", name))
        for name, sink in sinks.items()
    }
    with ExitStack() as closing:
        with building(target, {target: aside}, "--adopt", kept_folders) as exchange, ExitStack() as writing:
            # Not before the checkpoint is held: a run may have been at work until then.
            for folder in kept_folders:
                _check_idle(folder)
            committed = CommitLog(target).last_tick()
            writers = _writers(engine, sinks, aside, writing)
            held = _read(engine, writers, committed)
            result = run(str(aside), answers)
            if result.stopped_by is not None:
                return result
            if not result.last_tick:
                raise BadInput(
                    "no source has a row, so all rows of the sinks would be taken back",
                    fix="check the paths of the sources; if they are to be empty, run with --rebuild",
                )
            new = closing.enter_context(Checkpoint.open(aside, as_it_is))
            new.renumber(1 + max(committed, *(each.tick for each in held.values())))
            written = _prepare_differences(engine, answers, writers, held, new.tick)
            remove_folder(aside / "answers")
            writing.close()  # A prepared transaction would keep out the one that publishes it.
            exchange()
        # Nothing has held a sink since its writer was closed.
        opened = _writers(engine, sinks, target, closing)
        for name, writer in opened.items():
            _check_not_overtaken(name, writer, held[name])
        for writer in opened.values():
            writer.recover(new.tick)
        held_back = held_back_by(opened)
        return replace(result, last_tick=new.tick, changes_out=written, held_back=held_back)


@dataclass(frozen=True, slots=True)
class _Held:
    """Rows of a sink as of its last tick, with their counts."""

    tick: int
    rows: Sums

    def difference(self, answer: Sums) -> list[tuple[Any, ...]]:
        """Return the changes from these rows to those of `answer`, retractions first."""
        weights = {row: answer.get(row, 0) - self.rows.get(row, 0) for row in (answer | self.rows)}
        return sorted(((*row, n) for row, n in weights.items() if n), key=itemgetter(-1))


def _check_adoptable(graph: FlowGraph, sources: Mapping[str, Any], sinks: Mapping[str, Any]) -> None:
    """Raise `BadInput` for a sink that cannot be read back, or whose rows cannot be computed again."""
    if not sinks:
        raise BadInput(
            "no sink is given, so there is nothing to adopt",
            fix="give the sinks of the earlier runs, or run without --adopt",
        )
    analysis = analyse(graph)
    clocks = {
        TICK_TIME,
        *(name for name, source in sources.items() if isinstance(source, WallClock | TickTime)),
    }
    for name, sink in sinks.items():
        if not isinstance(sink, _READABLE):
            raise BadInput(
                f"sink {name!r} is {type(sink).__name__}, whose rows cannot be read back",
                why="What differs from them is unknown.",
                fix="leave the sink out, and give it to the next run if it keeps nothing; of a Kafka topic,\n"
                "run with an empty checkpoint and another topic, then point readers at it",
                sink=name,
            )
        at, verdict = graph.sinks[name], analysis.verdicts[name]
        reads_time = any(graph.sources.get(clock) in ancestors_of(graph, at) for clock in clocks)
        if verdict in (Verdict.GUARDED, Verdict.GIVEN_TICKS) or reads_time:
            lost = verdict is Verdict.GUARDED
            path = path_to_lost_fact(graph, analysis.facts, at, "det") if lost else [at]
            raise BadInput(
                f"the rows of sink {name!r} depend on {'the time of ' * reads_time}their ticks",
                where=steps_by_location((graph.nodes[node], "") for node in path),
                why="A run over all input has other ticks, and would take back what those gave.",
                fix="restore the checkpoint from a copy; or run with --rebuild, which replaces all rows",
                sink=name,
            )


def _answer(sink: Any, schema: Schema, folder: Path) -> Changelog | TableFiles:
    """Return a sink in a folder for the rows that another one is to hold."""
    if isinstance(sink, CsvChangelog):
        # CSV has one text for several values, so both sides must be CSV.
        return moved_to(sink, folder)
    # A changelog is cheaper to write, and reserves two names.
    return TableFiles(folder) if {WEIGHT, TICK} & {*schema.names} else Changelog(folder)


def _writers(
    engine: Engine, sinks: Mapping[str, Any], checkpoint: Path | None, closing: ExitStack
) -> dict[str, ReadableWriter]:
    found: dict[str, ReadableWriter] = {}
    for sink in open_sinks(engine, sinks, checkpoint, closing):
        assert isinstance(sink.writer, ReadableWriter), "_check_adoptable() comes first"
        found[sink.name] = sink.writer
    return found


def _read(engine: Engine, writers: Mapping[str, ReadableWriter], committed: int) -> dict[str, _Held]:
    """Read what the sinks hold, after they have got the last tick that the old checkpoint has committed."""
    found: dict[str, _Held] = {}
    for name, writer in writers.items():
        contents = writer.contents()
        if contents is None:
            raise _never_written(name)
        # What is prepared after that tick is dropped, and not more: if this adoption is killed, a run may
        # still resume from the old checkpoint.
        writer.recover(max(contents.tick, committed))
        found[name] = _Held(_tick(writer), _sums(engine, name, writer))
    if not (committed or any(each.tick for each in found.values())):
        raise _never_written(next(iter(found)))
    return found


def _prepare_differences(
    engine: Engine,
    answers: Mapping[str, Any],
    writers: Mapping[str, ReadableWriter],
    held: Mapping[str, _Held],
    tick: int,
) -> int:
    """Prepare a tick in the sinks that makes what they hold the answers. Returns its number of changes."""
    written = 0
    with ExitStack() as reading:
        for name, answer in _writers(engine, answers, None, reading).items():
            _check_not_overtaken(name, writers[name], held[name])
            changes = held[name].difference(_sums(engine, name, answer))
            if changes:
                writers[name].prepare(tick, changes)
                written += len(changes)
    return written


def _check_not_overtaken(sink: str, writer: ReadableWriter, held: _Held) -> None:
    if _tick(writer) != held.tick:
        raise BadInput(
            f"sink {sink!r} was written by another run meanwhile",
            fix="stop that run, and run with --adopt again",
        )


def _tick(writer: ReadableWriter) -> int:
    contents = writer.contents()
    return 0 if contents is None else contents.tick


def _sums(engine: Engine, sink: str, writer: ReadableWriter) -> Sums:
    contents, schema = writer.contents(), _schema(engine, sink)
    rows = iter(()) if contents is None else iter(contents.rows)
    batches = iter(lambda: with_representatives(list(islice(rows, BATCH_ROWS)), schema), [])
    return consolidate_rows(chain.from_iterable(batches))


def _schema(engine: Engine, sink: str) -> Schema:
    graph = engine.program.graph
    return graph.nodes[graph.sinks[sink]].schema


def _never_written(sink: str) -> BadInput:
    return BadInput(
        f"sink {sink!r} was never written, so there is nothing to adopt",
        fix="run without --adopt if no sink was; otherwise with --rebuild, which writes all of them anew",
        sink=sink,
    )


def _check_idle(folder: Path) -> None:
    """Raise `BadInput` if a run that writes to a sink's folder, or a compaction, is at work."""
    if folder.is_dir():
        lock = FolderLock.take(folder, exclusive=True)
        if lock is None:
            raise folder_in_use(folder)
        lock.release()
