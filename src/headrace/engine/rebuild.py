"""Rebuild of a checkpoint from the sources: with new sinks, or writing only differences to existing ones.

Both are built beside the old ones:

    state/             the checkpoint         .state.rebuilt/    the new one
    out/               a sink                 .out.rebuilt/      the new one
    .state.swaps.json  present from the end of the rebuild until all folders are exchanged

**Atomicity.** The list of swaps is the commit point: without it, the new folders are garbage, which the next
rebuild removes. With it, whoever opens the checkpoint next exchanges the folders that a kill has left. Each
exchange is one step of the file system, so every folder is the old one or the new one, whole. A mark in each
new folder tells which have been exchanged: it lies aside before, and in place afterwards.

**Adoption**, for sinks that stay: the run over the sources writes its *answers* beside the new checkpoint.
What the sinks hold is compared with them, and the difference prepared in the sinks as one more tick, the last
one of the new checkpoint. So the exchange of the checkpoint commits that tick: before it, whoever opens
the sinks drops what is prepared, and after it, publishes it.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import chain, islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.analysis import Verdict, analyse
from headrace.analysis.checks import ancestors_of, path_to_lost_fact, steps_by_location
from headrace.engine.endpoints import held_back_by, open_sinks
from headrace.engine.engine import Engine
from headrace.errors import BadInput, HeadraceError
from headrace.expr.value_keys import with_representatives
from headrace.file_system import (
    FolderLock,
    exchange_folders,
    local_path,
    remove_folder,
    subfolder_for,
    sync_folder,
    write_file,
)
from headrace.io import (
    Call,
    DeltaChangelog,
    DeltaTable,
    Memory,
    PostgresChangelog,
    PostgresTable,
    Print,
    TickTime,
    WallClock,
)
from headrace.io.files.changelog import Changelog, CsvChangelog
from headrace.io.files.table_files import TableFiles
from headrace.io.keyed_tables import consolidate_rows
from headrace.io.outbox import BATCH_ROWS
from headrace.io.sink import ReadableWriter
from headrace.io.source import WEIGHT, dead_letter_folder, set_fields
from headrace.operators.endpoints import TICK_TIME
from headrace.state.checkpoint import Checkpoint
from headrace.state.commit import CommitLog, Lease
from headrace.state.manifest import as_it_is
from headrace.state.rewind import keep_skipping
from headrace.tables.version_folders import TICK

if TYPE_CHECKING:
    from headrace.engine.progress import RunResult
    from headrace.expr.types import Schema
    from headrace.flow.flow import Flow
    from headrace.graph.node import FlowGraph


_MARK = ".rebuilt"
_OUTPUT = re.compile(r"tick=\d+|versions|current|buckets|[._].*")
"""Names of entries of sinks; hidden ones belong to the writers and readers of the folder."""


def rebuild(
    checkpoint: str | os.PathLike[str],
    sources: Mapping[str, Any],
    sinks: Mapping[str, Any],
    run: Callable[[str, Mapping[str, Any]], RunResult],
) -> RunResult:
    """Run a flow into new folders, and swap them with the old ones unless a signal stopped the run.

    run: runs the flow with the given checkpoint and sinks. Of files, and of sinks that keep nothing.

    Raises `BadInput` for a sink that is not a local folder, and for a folder that is in use, holds anything
    else, or cannot be exchanged; `CheckpointInUse`; and the errors of `run`. The old folders then stay.
    """
    target = Path(os.path.realpath(local_path(checkpoint, "checkpoint")))
    finish_rebuild(target)
    check_dead_letters(sources)
    targets = {name: _folder_of(name, sink) for name, sink in sinks.items()}
    swaps = {path: staging_path(path) for path in (*targets.values(), target) if path is not None}
    moved = {n: retarget_sink(sink, swaps[at]) if (at := targets[n]) else sink for n, sink in sinks.items()}
    with building(target, swaps, "--rebuild") as exchange:
        result = run(str(swaps[target]), moved)
        if result.stopped_by is None:
            exchange()
        return result


def finish_rebuild(checkpoint: Path) -> None:
    """Swap the remaining folders of a complete rebuild.

    Raises `BadInput` if another process is at it.
    """
    checkpoint = Path(os.path.realpath(checkpoint))
    swaps = _list_of_swaps(checkpoint)
    if not swaps.exists():
        return
    lock = FolderLock.take(swaps, exclusive=True)
    if lock is None:
        raise folder_in_use(checkpoint)
    with lock:
        for aside, target in json.loads(swaps.read_text()):
            _exchange(Path(aside), Path(target))
        swaps.unlink()
        sync_folder(swaps.parent)


@contextmanager
def building(
    checkpoint: Path, swaps: Mapping[Path, Path], option: str, beside: Iterable[Path] = ()
) -> Generator[Callable[[], None]]:
    """Lock the folders to be replaced, and yield the function that swaps them with the new ones.

    Without it, the new folders are removed. option: of the command, for errors.
    beside: folders that stay.
    """
    _check_only_output(checkpoint, swaps, beside)
    missing = [path for path in swaps if not path.exists()]

    def exchange() -> None:
        for path in missing:
            if path.exists():  # Another run has begun there, which no lock kept out.
                raise folder_in_use(path)
        _commit(checkpoint, swaps)
        finish_rebuild(checkpoint)

    with ExitStack() as holding:
        if checkpoint.is_dir():
            holding.callback(Lease.take(checkpoint).release)
        for path, aside in swaps.items():
            holding.enter_context(_replaceable(path, aside))
        holding.callback(_remove, swaps.values())
        keep_skipping(checkpoint, swaps[checkpoint])
        with _naming(checkpoint, swaps[checkpoint], option):
            yield exchange


def _commit(checkpoint: Path, swaps: Mapping[Path, Path]) -> None:
    for path, aside in swaps.items():
        if path.exists():
            shutil.copymode(path, aside)  # The same readers may read it.
        write_file(aside / _MARK, b"", durable=True)
        sync_folder(aside)
        sync_folder(aside.parent)
    # Sinks first: until the checkpoint is exchanged, no other run resumes from it.
    pairs = [[str(aside), str(path)] for path, aside in swaps.items()]
    write_file(_list_of_swaps(checkpoint), json.dumps(pairs).encode(), durable=True)
    sync_folder(checkpoint.parent)


def _exchange(aside: Path, target: Path) -> None:
    """Put a new folder in place. Idempotent."""
    if (aside / _MARK).exists():
        if target.exists():
            exchange_folders(aside, target)
        else:
            os.rename(aside, target)
        sync_folder(target.parent)
    (target / _MARK).unlink(missing_ok=True)
    remove_folder(aside)


def staging_path(path: Path) -> Path:
    """Return the path at which the new folder for `path` is built."""
    return path.with_name(f".{path.name}.rebuilt")


def _list_of_swaps(checkpoint: Path) -> Path:
    return checkpoint.with_name(f".{checkpoint.name}.swaps.json")


def _remove(asides: Iterable[Path]) -> None:
    # Unless the list of swaps is there: then they are the new folders.
    for aside in asides:
        if not (aside / _MARK).exists():
            remove_folder(aside)


@contextmanager
def _replaceable(path: Path, aside: Path) -> Generator[None]:
    """Hold the exclusive lock on a folder, if it exists, and make room for the new one."""
    remove_folder(aside)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        yield
        return
    if not path.is_dir():
        raise BadInput(f"{path} is not a folder", fix="give the folder of the earlier runs", path=str(path))
    lock = FolderLock.take(path, exclusive=True)
    if lock is None:
        raise folder_in_use(path)
    with lock:
        try:
            aside.mkdir()
            lock.check_replaceable(aside)
        except OSError as error:
            raise BadInput(
                f"{path} cannot be exchanged with a folder beside it",
                why=str(error),
                fix="run with an empty checkpoint and other paths for the sinks, then point readers at them",
                path=str(path),
            ) from error
        finally:
            remove_folder(aside)
        yield


@contextmanager
def _naming(checkpoint: Path, aside: Path, option: str) -> Generator[None]:
    """Make errors advise commands for the checkpoint, because the new folder is removed."""
    try:
        yield
    except HeadraceError as error:
        error.fix = error.fix.replace(str(aside), str(checkpoint))
        error.advising(f"Nothing was replaced: the next {option} begins anew.")
        raise


def folder_in_use(path: Path) -> BadInput:
    """Create the error for a folder that another process works on."""
    return BadInput(
        f"{path} is in use",
        why="A run that writes it, a compaction or another rebuild is at work.",
        fix="wait until it ends",
        path=str(path),
    )


def _folder_of(name: str, sink: object) -> Path | None:
    """Return the folder to swap; None for a sink that stores nothing. Raises `BadInput` for other sinks."""
    if isinstance(sink, Changelog | TableFiles):
        return Path(os.path.realpath(sink.path))
    if isinstance(sink, Call | Memory | Print):
        return None
    raise BadInput(
        f"sink {name!r} is {type(sink).__name__}, which cannot be rebuilt beside the old rows",
        why="Only the folders of changelog:, csv: and table: are exchanged at the end.",
        fix="run with an empty checkpoint and another table or topic for this sink, then point readers at it",
        sink=name,
    )


def _check_only_output(checkpoint: Path, swaps: Iterable[Path], beside: Iterable[Path]) -> None:
    """Raise `BadInput` if a folder has other contents, which would be removed with the old output."""
    for path in swaps:
        names = sorted(os.listdir(path)) if path.is_dir() else []
        if path == checkpoint:
            foreign = names[:1] if "lease" not in names else []
        else:
            foreign = [name for name in names if not _OUTPUT.fullmatch(name)]
        others = (*swaps, *beside, Path.cwd())
        inside = [other.name for other in others if path in (other, *other.parents) and other != path]
        inside += [path.name] if path == Path.cwd() else []
        if foreign or inside:
            raise BadInput(
                f"{path} holds {(foreign or inside)[0]}, which no run has written as its own",
                why="The whole folder is replaced, and the old one removed.",
                fix="move it elsewhere, or give the checkpoint and each sink a folder of their own",
                path=str(path),
            )


def retarget_sink(sink: Any, folder: Path) -> Any:
    """Return a copy of a sink that writes to another folder."""
    moved = copy.copy(sink)
    set_fields(moved, path=str(folder))
    return moved


def check_dead_letters(sources: Mapping[str, Any]) -> None:
    """Raise `BadInput` if a folder already holds dead letters: the rebuild would reuse their tick numbers."""
    for name, source in sources.items():
        folder = dead_letter_folder(source)
        if folder is not None and any(Path(folder).glob("tick=*")):
            raise BadInput(
                f"source {name!r}: {folder} holds dead letters of earlier runs",
                why="The rebuild reads these rows again and would write files of the same names.",
                fix="give an empty folder as dead_letter, or move the old files away",
                source=name,
                path=folder,
            )


_READABLE = (Changelog, TableFiles, DeltaTable, DeltaChangelog, PostgresTable, PostgresChangelog)
RowCounts: TypeAlias = dict[tuple[Any, ...], int]


def adopt(
    flow: Flow,
    checkpoint: str | os.PathLike[str],
    sources: Mapping[str, Any],
    sinks: Mapping[str, Any],
    run: Callable[[str, Mapping[str, Any]], RunResult],
) -> RunResult:
    """Run a flow into a new checkpoint, and write only the differences from the sinks' current rows.

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
    engine, aside = Engine(flow), staging_path(target)
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
    rows: RowCounts

    def difference(self, answer: RowCounts) -> list[tuple[Any, ...]]:
        """Return the changes that turn these rows into the rows of `answer`, retractions first."""
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
    """Return a sink in `folder` to compute the rows that `sink` should hold."""
    if isinstance(sink, CsvChangelog):
        # CSV has one text for several values, so both sides must be CSV.
        return retarget_sink(sink, folder)
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
    """Recover the sinks to the last tick committed by the old checkpoint, and read their rows."""
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
    """Prepare a tick that turns the sinks' rows into `answers`. Returns the number of changes."""
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


def _sums(engine: Engine, sink: str, writer: ReadableWriter) -> RowCounts:
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
    """Raise `BadInput` while a run or a compaction is writing to a sink's folder."""
    if folder.is_dir():
        lock = FolderLock.take(folder, exclusive=True)
        if lock is None:
            raise folder_in_use(folder)
        lock.release()
