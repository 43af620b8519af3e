"""Skipped files: input files excluded from a checkpoint's runs, by name.

A file that cannot be read fails its tick, and the next run encounters it again. The user can correct or
remove the file, because an uncommitted tick is planned anew, or skip it if it must stay as it is. The list is
a file of its own in the checkpoint, read when a run starts.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path

from headrace.errors import BadInput, BadRow, InputChanged, UnreadableSource
from headrace.path_or_url import local_path
from headrace.state.checkpoint_files import sync
from headrace.state.commit import read_checked, write_checked
from headrace.state.lease import Lease

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


def skip(checkpoint: str | PathLike[str], file: str | PathLike[str]) -> Path:
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


def unskip(checkpoint: str | PathLike[str], file: str | PathLike[str]) -> Path:
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
    """Let the runs of a new checkpoint skip the files that those of an old one skip, if any."""
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


__all__ = ["checkpoint_folder", "skip", "skipped_files", "telling_ways_past", "unskip"]
