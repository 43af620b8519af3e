"""Commits, and the lease under which a driver makes them.

A commit is one file per tick, written last, that names everything the tick made durable. It appears
completely or not at all, and only once: it is written aside, made durable, and linked under its name only if
that name is free. Tick numbers have no gaps, and each commit names the first retained tick, so a missing
commit is noticed, even the last one. The file carries its own checksum.

The lease admits one driver at a time. A file lock keeps a second live driver out and is released by the
system when its holder dies. The fencing number, one higher for every holder, is taken by creating a file that
did not exist; a holder that is no longer the highest number (on a file system whose locks do not hold) may
not commit.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from headrace.errors import CheckpointDamaged, CheckpointInUse
from headrace.state.chain import BatchChain, FileRef, damaged, sync

POSITIONS = "positions"
"""Name of the slots with the positions of sources, behind the name of the source's state."""

FORMAT = 5
"""Number of the form of checkpoints, one higher where an earlier one cannot be read."""

KEEP_TICKS = 3
"""Default number of ticks that a checkpoint retains for a rewind, including the last one."""


@dataclass(frozen=True, slots=True)
class Commit:
    """State of a checkpoint after a tick.

    tick:        from 1, without gaps.
    fence:       number of the lease under which it was made.
    manifest:    the file of what it was made under.
    oldest:      the first tick whose commit is kept beside this one.
    chains:      per shard that ever changed, its files.
    positions:   what the sources need to go on, as JSON. sources: files of what is too large for that.
    outputs:     what the sinks need to publish, as JSON.
    counters:    rows in and out, where watermarks stand, and the like.
    """

    tick: int
    fence: int
    manifest: FileRef
    oldest: int
    chains: Mapping[int, BatchChain] = field(default_factory=dict[int, BatchChain])
    positions: Any = None
    outputs: Any = None
    counters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    sources: BatchChain = field(default_factory=BatchChain)

    def chain(self, shard: int) -> BatchChain:
        return self.chains.get(shard, BatchChain())

    def files(self) -> Iterator[FileRef]:
        yield self.manifest
        for chain in (*self.chains.values(), self.sources):
            yield from chain.files()

    @property
    def state_bytes(self) -> int:
        """Total size of the state files."""
        files = (file for chain in self.chains.values() for file in chain.files())
        return sum(size for _, size in {(file.name, file.size) for file in files})

    def to_json(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "tick": self.tick,
            "fence": self.fence,
            "manifest": self.manifest.to_json(),
            "oldest": self.oldest,
            "chains": {str(shard): chain.to_json() for shard, chain in self.chains.items()},
            "positions": self.positions,
            "outputs": self.outputs,
            "counters": dict(self.counters),
            "sources": self.sources.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Commit:
        chains = {int(shard): BatchChain.from_json(chain) for shard, chain in data["chains"].items()}
        return cls(
            int(data["tick"]), int(data["fence"]), FileRef.from_json(data["manifest"]), int(data["oldest"]),
            chains, data["positions"], data["outputs"], data["counters"],
            BatchChain.from_json(data["sources"]),
        )  # fmt: skip


class CommitLog:
    """Retained commits of a checkpoint. durable: whether they must survive a power failure."""

    def __init__(self, checkpoint: Path, *, durable: bool = True) -> None:
        self._durable = durable
        self._folder = checkpoint / "commit"
        self._own: dict[int, Commit] = {}
        """Commits of this process, which need not be read again to be forgotten."""

    def ticks(self) -> list[int]:
        """Return the ticks with a commit, ascending."""
        return sorted(int(p.stem) for p in self._folder.glob("*.json") if p.stem.isdigit())

    def last_tick(self) -> int:
        """Return the last tick with a commit, 0 before the first."""
        return max(self.ticks(), default=0)

    def last(self) -> Commit | None:
        """Return the last commit; None before the first. Raises `CheckpointDamaged` if some are missing."""
        ticks = self.ticks()
        if not ticks:
            return None
        last = self.read(ticks[-1])
        missing = {*range(last.oldest, last.tick)} - {*ticks}
        if missing:
            # Either this one, or the ones after the last that is there.
            raise damaged(self._path(max(missing)), f"it is missing, or those after tick {last.tick} are")
        return last

    def read(self, tick: int) -> Commit:
        """Read the commit of a tick. Raises `CheckpointDamaged`."""
        path = self._path(tick)
        body = read_checked(path)
        if body.get("format") != FORMAT:
            raise _of_another_version(path, body.get("format"))
        try:
            commit = Commit.from_json(body)
        except (KeyError, ValueError, TypeError, IndexError, AttributeError) as error:
            raise damaged(path, f"it is not a commit: {error!r}") from error
        if commit.tick != tick:
            raise damaged(path, f"it is the commit of tick {commit.tick}")
        return commit

    def write(self, commit: Commit, check: Callable[[], None] = lambda: None) -> None:
        """Write a commit, unless `check`, called just before, raises.

        Raises `CheckpointInUse` if another process has committed this tick or called `drop_unfinished` in the
        meantime.
        """
        path = self._path(commit.tick)
        aside = self._aside(commit)
        try:
            check()
            os.link(aside, path)
        except FileExistsError:
            why = f"{path} appeared while this process worked on the same tick."
            raise self._in_use(commit.tick, why) from None
        except FileNotFoundError:
            raise self._in_use(commit.tick, "it took over while this process committed.") from None
        finally:
            aside.unlink(missing_ok=True)
        self._own[commit.tick] = commit
        if self._durable:
            sync(self._folder)

    def replace(self, commit: Commit, check: Callable[[], None] = lambda: None) -> None:
        """Atomically replace the commit of the same tick. Raises like `write`."""
        aside = self._aside(commit)
        try:
            check()
            aside.rename(self._path(commit.tick))
        except FileNotFoundError:
            raise self._in_use(commit.tick, "it took over while this process committed.") from None
        self._own[commit.tick] = commit
        sync(self._folder)

    def drop_unfinished(self) -> None:
        """Invalidate commits begun but not finished by other processes.

        Called by the holder of a new fencing number. A process checks its number after it has begun a commit:
        so either it finds that a later holder exists, or it began earlier and finds its file gone, or its
        commit is complete before this function returns.
        """
        for path in self._folder.glob("*.part"):
            path.unlink(missing_ok=True)

    def _in_use(self, tick: int, why: str) -> CheckpointInUse:
        return CheckpointInUse(
            f"tick {tick} was committed by another process, or will be",
            why=why,
            fix="let the other one run, or stop it and start again",
            checkpoint=str(self._folder.parent),
        )

    def drop(self, tick: int) -> Commit:
        """Delete a commit and return it."""
        dropped = self._own.pop(tick, None) or self.read(tick)
        self._path(tick).unlink(missing_ok=True)
        return dropped

    def files(self) -> set[str]:
        """Return the names of all files that some commit names."""
        commits = (self._own.get(tick) or self.read(tick) for tick in self.ticks())
        return {file.name for commit in commits for file in commit.files()}

    def _aside(self, commit: Commit) -> Path:
        path = self._path(commit.tick)
        path.parent.mkdir(exist_ok=True)
        aside = path.with_name(f"{path.name}.{commit.fence}.part")
        write_checked(aside, commit.to_json(), durable=self._durable)
        return aside

    def _path(self, tick: int) -> Path:
        return self._folder / f"{tick:012d}.json"


def _of_another_version(path: Path, format: Any) -> CheckpointDamaged:
    folder = path.parent.parent
    later = isinstance(format, int) and format > FORMAT
    return CheckpointDamaged(
        f"the checkpoint {folder} was written by {'a later' if later else 'an earlier'} version of Headrace",
        why="its state is in files of another form, which this version does not read.",
        fix="run it with that version, or give this one an empty checkpoint folder;\n"
        "with the sinks as they are: `headrace run --adopt`",
        file=str(path),
    )


def write_checked(path: Path, body: dict[str, Any], *, durable: bool) -> None:
    """Write JSON with a checksum to a file not yet visible to readers."""
    text = json.dumps(body, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    with path.open("w", encoding="ascii") as out:
        out.write(json.dumps({"digest": _digest(text)})[:-1] + f', "body": {text}}}\n')
        out.flush()
        if durable:
            os.fsync(out.fileno())


def read_checked(path: Path) -> dict[str, Any]:
    """Read the body of a file written by `write_checked`. Raises `CheckpointDamaged`."""
    try:
        return parse_checked(path, path.read_text(encoding="ascii"))
    except FileNotFoundError:
        raise damaged(path, "it is missing") from None
    except (OSError, ValueError) as error:
        raise damaged(path, f"it cannot be read: {error!r}") from error


def parse_checked(path: Path, text: str) -> dict[str, Any]:
    """Return the body in the text of a file written by `write_checked`. Raises `CheckpointDamaged`."""
    try:
        data = json.loads(text)
        body, digest = data["body"], data["digest"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise damaged(path, f"it cannot be read: {error!r}") from error
    text = json.dumps(body, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    if not isinstance(body, dict) or _digest(text) != digest:
        raise damaged(path, "its content does not match its checksum")
    return cast("dict[str, Any]", body)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("ascii"), digest_size=16).hexdigest()


class Lease:
    """A held lease. `number` is the fencing number."""

    def __init__(self, folder: Path, handle: int, number: int) -> None:
        self._folder = folder
        self._handle: int | None = handle
        self.number = number

    @classmethod
    def take(cls, folder: Path) -> Lease:
        """Acquire the lease of the checkpoint in `folder`. Raises `CheckpointInUse`."""
        holders = folder / "lease"
        holders.mkdir(parents=True, exist_ok=True)
        handle = os.open(holders / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(handle, 1000).decode(errors="replace")
            os.close(handle)
            raise _in_use(folder, holder) from None
        try:
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(_myself()).encode(), 0)
            return cls(folder, handle, _next_number(holders))
        except BaseException:
            os.close(handle)
            raise

    def check(self) -> None:
        """Raise `CheckpointInUse` if a later holder exists."""
        latest = max(_numbers(self._folder / "lease"), default=0)
        if self._handle is None or latest != self.number:
            raise CheckpointInUse(
                f"the checkpoint {self._folder} was taken over by another process",
                why=f"this process holds number {self.number}, the latest is {latest}.",
                fix="let the other one run, or stop it and start again",
                checkpoint=str(self._folder),
            )

    def release(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


def _numbers(holders: Path) -> list[int]:
    return [int(p.name) for p in holders.iterdir() if p.name.isdigit()]


def _next_number(holders: Path) -> int:
    while True:
        before = _numbers(holders)
        number = max(before, default=0) + 1
        try:
            os.close(os.open(holders / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        except FileExistsError:
            continue
        for old in before:
            (holders / str(old)).unlink(missing_ok=True)
        return number


def _myself() -> dict[str, object]:
    since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
    return {"host": socket.gethostname(), "process": os.getpid(), "since": since}


def _in_use(folder: Path, holder: str) -> CheckpointInUse:
    try:
        facts = json.loads(holder)
        who = f"process {facts['process']} on {facts['host']} has held it since {facts['since']}."
    except (ValueError, KeyError, TypeError):
        who = "another process holds it."
    return CheckpointInUse(
        f"the checkpoint {folder} is in use",
        why=who,
        fix="wait until it ends, or give this run a checkpoint of its own",
        checkpoint=str(folder),
    )
