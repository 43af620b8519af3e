"""A new checkpoint and new sinks from the sources, built beside the old ones.

    state/             the checkpoint         .state.rebuilt/    the new one
    out/               a sink                 .out.rebuilt/      the new one
    .state.swaps.json  present from the end of the rebuild until all folders are exchanged

**Atomicity.** The list of swaps is the commit point: without it, the new folders are garbage, which the next
rebuild removes. With it, whoever opens the checkpoint next exchanges the folders that a kill has left. Each
exchange is one step of the file system, so every folder is the old one or the new one, whole. A mark in each
new folder tells which have been exchanged: it lies aside before, and in place afterwards.
"""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, HeadraceError
from headrace.file_system import (
    FolderLock,
    exchange_folders,
    local_path,
    remove_folder,
    sync_folder,
    write_file,
)
from headrace.io import Call, Memory, Print
from headrace.io.files.changelog import Changelog
from headrace.io.files.table_files import TableFiles
from headrace.io.source import dead_letter_folder, set_fields
from headrace.state.commit import Lease
from headrace.state.rewind import keep_skipping

if TYPE_CHECKING:
    from headrace.engine.progress import RunResult

_MARK = ".rebuilt"
_OUTPUT = re.compile(r"tick=\d+|versions|current|buckets|[._].*")
"""Names of entries of sinks; hidden ones belong to the writers and readers of the folder."""


def rebuild(
    checkpoint: str | os.PathLike[str],
    sources: Mapping[str, Any],
    sinks: Mapping[str, Any],
    run: Callable[[str, Mapping[str, Any]], RunResult],
) -> RunResult:
    """Run a flow into new folders, and exchange them with the old ones if it was not stopped by a signal.

    run: runs the flow with the given checkpoint and sinks. Of files, and of sinks that keep nothing.

    Raises `BadInput` for a sink that is not a local folder, and for a folder that is in use, holds anything
    else, or cannot be exchanged; `CheckpointInUse`; and the errors of `run`. The old folders then stay.
    """
    target = Path(os.path.realpath(local_path(checkpoint, "checkpoint")))
    finish_rebuild(target)
    check_dead_letters(sources)
    targets = {name: _folder_of(name, sink) for name, sink in sinks.items()}
    swaps = {path: aside_of(path) for path in (*targets.values(), target) if path is not None}
    moved = {n: moved_to(sink, swaps[at]) if (at := targets[n]) else sink for n, sink in sinks.items()}
    with building(target, swaps, "--rebuild") as exchange:
        result = run(str(swaps[target]), moved)
        if result.stopped_by is None:
            exchange()
        return result


def finish_rebuild(checkpoint: Path) -> None:
    """Exchange the folders of a complete rebuild that are not exchanged yet.

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
    """Hold the folders to be replaced, and yield the function that exchanges them with the new ones.

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


def aside_of(path: Path) -> Path:
    """Return where the new folder for `path` is built."""
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
    """Let errors advise commands for the checkpoint, because the new folder is removed."""
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
    """Return the folder to exchange; None for a sink that keeps nothing. Raises `BadInput` for others."""
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
    """Raise `BadInput` for a folder with something else in it, which would be removed with the old output."""
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


def moved_to(sink: Any, folder: Path) -> Any:
    """Return a sink that writes the same to another folder."""
    moved = copy.copy(sink)
    set_fields(moved, path=str(folder))
    return moved


def check_dead_letters(sources: Mapping[str, Any]) -> None:
    """Raise `BadInput` for a folder that holds dead letters already: ticks have the same numbers again."""
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
