"""Corrections of a checkpoint between runs: rewind to an earlier tick, forks, and files to skip.

A *rewind* discards all ticks after a retained one. State and source positions become those of that tick, so
that the next run reads all later input again. Output already delivered to sinks stays there: a sink that
holds later ticks reports it in the next run. Spark keeps positions in a log of its own, which is truncated,
too. These two steps are not atomic, so the rewind is first recorded, and no run may start until it is
complete.

A *fork* is a checkpoint of its own with the state of a retained tick. It shares the files by hard link, and
leaves the checkpoint as it is.

A *skipped file* is an input file excluded by name. A file that cannot be read fails its tick, and the next
run encounters it again. The user can correct or remove the file, because an uncommitted tick is planned anew,
or skip it if it must stay as it is. The list is a file of its own in the checkpoint, read when a run starts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, cast

from headrace.errors import BadInput, BadRow, CheckpointDamaged, InputChanged, UnreadableSource
from headrace.file_system import local_path, make_private_folder, take_over
from headrace.state.arranged_store import stored_entries
from headrace.state.chain import sync
from headrace.state.codec import decode
from headrace.state.commit import POSITIONS, Commit, CommitLog, Lease, read_checked, write_checked
from headrace.state.manifest import Manifest, as_it_is

__all__ = [
    "Rewound",
    "check_not_rewinding",
    "checkpoint_folder",
    "fork",
    "rewind",
    "skip_file",
    "skipped_files",
    "telling_ways_past",
    "unskip_file",
]

_MARK = "rewind.json"
_SPARKS_LOGS = ("offsets", "commits")


@dataclass(frozen=True, slots=True)
class Rewound:
    """Result of a rewind. tick: the new last tick. forgotten: number of discarded ticks. sinks: sinks that
    may be ahead.

    gone: files that these ticks had read and that are not there any more.
    """

    tick: int
    forgotten: int
    sinks: tuple[str, ...]
    gone: tuple[str, ...] = ()


def rewind(checkpoint: str | PathLike[str], tick: int) -> Rewound:
    """Rewind to `tick`, which must be retained (see `keep_ticks`), while the flow is not running.

    Raises `BadInput` for a tick that is not kept, or whose positions Spark has forgotten;
    `CheckpointInUse`, `CheckpointDamaged`; `FlowChanged` where there is no checkpoint. Broken off, it is
    to be called again, for the same tick or an earlier one.
    """
    folder = Path(local_path(checkpoint, "checkpoint")).absolute()
    log = CommitLog(folder)
    if not log.ticks():
        as_it_is(folder, None, 0)
    lease = Lease.take(folder)
    try:
        begun = _broken_off(folder)
        if begun is not None and begun < tick:
            # What Spark had noted of the ticks in between is gone.
            raise _half_done(folder, begun)
        log.drop_unfinished()
        ticks = log.ticks()
        if tick not in ticks:
            raise BadInput(
                f"one cannot go back to tick {tick}",
                why=f"the ticks that are kept are {ticks[0]} to {ticks[-1]}.",
                fix="run with a larger keep_ticks to have more of them",
                tick=tick,
            )
        to = log.read(tick)
        source, last_batch = folder / "source", _batch_of(to)
        _check_positions_are_kept(source, tick, last_batch)
        sinks = _sinks_of(folder, [log.read(later) for later in ticks if later > tick])
        gone = tuple(_files_gone(folder, to, log.read(ticks[-1])))
        _mark(folder, tick)
        _cut_sparks_logs(source, last_batch)
        _forget_after(log, ticks, tick)
        sync(folder / "commit")
        (folder / _MARK).unlink()
        sync(folder)
    finally:
        lease.release()
    return Rewound(tick, ticks[-1] - tick, sinks, gone)


def fork(checkpoint: Path, tick: int, to: Path) -> bool:
    """Make a checkpoint in the folder `to` with the state of a retained tick; return whether it is retained.

    The sources go on where they were at that tick as far as the checkpoint has their positions; Spark's own
    log is left out. No run may be at work. Raises `CheckpointDamaged`.
    """
    log = CommitLog(checkpoint)
    if tick not in log.ticks():
        return False
    commit = log.read(tick)
    make_private_folder(to)
    for file in {file.name for file in commit.files()}:
        (to / file).parent.mkdir(parents=True, exist_ok=True)
        take_over(checkpoint / file, to / file)
    for folder in {(to / file.name).parent for file in commit.files()}:
        sync(folder)
    (to / "commit").mkdir(parents=True, exist_ok=True)
    CommitLog(to).write(replace(commit, oldest=tick))
    return True


def check_not_rewinding(folder: Path) -> None:
    """Raise `CheckpointDamaged` if a rewind was interrupted."""
    tick = _broken_off(folder)
    if tick is not None:
        raise _half_done(folder, tick)


def _broken_off(folder: Path) -> int | None:
    """Return the target tick of an interrupted rewind, if there is one."""
    mark = folder / _MARK
    return int(read_checked(mark)["tick"]) if mark.exists() else None


def _half_done(folder: Path, tick: int) -> CheckpointDamaged:
    return CheckpointDamaged(
        f"going back to tick {tick} of the checkpoint {folder} was broken off",
        why="its state and the positions of its sources may be of different ticks.",
        fix=f"headrace rewind {folder} {tick}",
        file=str(folder / _MARK),
    )


def _mark(folder: Path, tick: int) -> None:
    aside = folder / f"{_MARK}.part"
    write_checked(aside, {"tick": tick}, durable=True)
    aside.rename(folder / _MARK)
    sync(folder)


def _sinks_of(folder: Path, commits: Iterable[Commit]) -> tuple[str, ...]:
    """Return the names of the sinks written in these commits."""
    manifests = (Manifest.read(folder, commit.manifest) for commit in commits)
    return tuple(dict.fromkeys(sink["name"] for manifest in manifests for sink in manifest.sinks or ()))


def _files_gone(folder: Path, to: Commit, last: Commit) -> Iterator[str]:
    """Yield the files read between two commits that no longer exist, so that a rerun would miss them."""
    before = dict(_positions(folder, to))
    for source, position in _positions(folder, last):
        if before.get(source) != position and isinstance(position, tuple):
            *_, path = cast("tuple[int, int, int, str]", position)
            if not os.path.exists(path):
                yield path


def _positions(folder: Path, commit: Commit) -> Iterator[tuple[tuple[str, bytes], object]]:
    """Yield each file, or other part of a source, with the position up to which it was read."""
    for chain in (*commit.chains.values(), commit.sources):
        entries = stored_entries(folder, chain, lambda slot: slot.endswith(f".{POSITIONS}"))
        yield from (((slot, key), decode(value)) for slot, key, value in entries)


def _batch_of(commit: Commit) -> int:
    """Return the last Spark batch included in a commit; -1 if there is none."""
    positions: Any = commit.positions
    batch = positions.get("batch") if isinstance(positions, dict) else None
    return -1 if batch is None else int(batch)


def _check_positions_are_kept(source: Path, tick: int, batch: int) -> None:
    """Raise `BadInput` if Spark has discarded the offsets of a batch and would start over."""
    if batch < 0 or not source.is_dir() or (source / "offsets" / str(batch)).is_file():
        return
    raise BadInput(
        f"one cannot go back to tick {tick}",
        why=f"Spark has forgotten how far its batch {batch} had read: it keeps as many as\n"
        "spark.sql.streaming.minBatchesToRetain says, 100 by default.",
        fix="go back to a later tick, or run with a larger number there",
        tick=tick,
    )


def _cut_sparks_logs(source: Path, last: int) -> None:
    """Delete Spark's log entries for batches after `last`, newest first."""
    for log in _SPARKS_LOGS:
        if not (source / log).is_dir():
            continue
        later = [p for p in (source / log).iterdir() if p.name.isdigit() and int(p.name) > last]
        for path in sorted(later, key=lambda p: int(p.name), reverse=True):
            for name in (f".{path.name}.crc", path.name):
                path.with_name(name).unlink(missing_ok=True)
        sync(source / log)


def _forget_after(log: CommitLog, ticks: list[int], tick: int) -> None:
    # The commits before it were dropped when later ones came: nobody is to miss them.
    for later in ticks[ticks.index(tick) :]:
        log.replace(replace(log.read(later), oldest=ticks[0]))
    for later in reversed(ticks[ticks.index(tick) + 1 :]):
        log.drop(later)


_LIST = "skipped.json"


def skipped_files(checkpoint: Path) -> frozenset[str]:
    """Return the absolute paths of the files that a checkpoint's runs skip. Raises `CheckpointDamaged`."""
    path = checkpoint / _LIST
    return frozenset(read_checked(path)["files"]) if path.exists() else frozenset()


def checkpoint_folder(checkpoint: str | PathLike[str]) -> Path:
    """Return a checkpoint's absolute folder. Raises `BadUri` for a scheme, `BadInput` for another folder."""
    folder = Path(local_path(checkpoint, "checkpoint")).absolute()
    if not (folder / "commit").is_dir():
        raise BadInput(
            f"{os.fspath(checkpoint)} is not the folder of a checkpoint",
            fix="give the folder that the flow is run with: --checkpoint FOLDER",
            checkpoint=str(folder),
        )
    return folder


def skip_file(checkpoint: str | PathLike[str], file: str | PathLike[str]) -> Path:
    """Exclude a file from later runs; return its absolute path. Rows already read from it stay.

    Raises `BadUri` for a scheme; `BadInput` for a folder that is no checkpoint and for a file that is not
    there; `CheckpointInUse` while a run is at work.
    """
    folder = checkpoint_folder(checkpoint)
    path = Path(os.path.abspath(file))
    if not path.is_file():
        raise BadInput(
            f"there is no file {os.fspath(file)} to skip",
            why="A file that was removed is not read in any case.",
            fix="give the path of the file as the error of the run tells it",
            file=str(path),
        )
    _change(folder, add={str(path)})
    return path


def unskip_file(checkpoint: str | PathLike[str], file: str | PathLike[str]) -> Path:
    """Include a skipped file in later runs again; return its absolute path.

    Raises `BadInput` if the file was not skipped.
    """
    folder = checkpoint_folder(checkpoint)
    path = Path(os.path.abspath(file))
    skipped = skipped_files(folder)
    if str(path) not in skipped:
        raise BadInput(
            f"{os.fspath(file)} is not skipped",
            fix=f"one of {', '.join(sorted(skipped))}" if skipped else "the checkpoint skips no file",
            file=str(path),
        )
    _change(folder, remove={str(path)})
    return path


def _change(folder: Path, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
    lease = Lease.take(folder)
    try:
        files = sorted({*skipped_files(folder), *add} - {*remove})
        aside = folder / f"{_LIST}.part"
        write_checked(aside, {"files": files}, durable=True)
        aside.rename(folder / _LIST)
        sync(folder)
    finally:
        lease.release()


def keep_skipping(old: Path, new: Path) -> None:
    """Make runs of a new checkpoint skip the files that runs of an old one skip, if any."""
    files = skipped_files(old)
    if files:
        new.mkdir(mode=0o700)
        write_checked(new / _LIST, {"files": sorted(files)}, durable=True)


@contextmanager
def telling_ways_past(checkpoint: str | PathLike[str] | None) -> Iterator[None]:
    """Add to errors about unreadable files the command that makes later runs skip the file."""
    try:
        yield
    except (BadRow, InputChanged, UnreadableSource) as error:
        file = getattr(error, "file", None)
        if checkpoint is None or file is None:
            raise
        command = shlex.join(["headrace", "skip", os.fspath(checkpoint), file])
        advice = f"To leave the file out: {command}"
        if isinstance(error, InputChanged):
            advice = f"What was read of it stays in any case. {advice}"
        else:
            way = "Nothing of the tick is committed: when the file is corrected or removed, run again."
            advice = f"{way} {advice}"
        error.advising(advice)
        raise
