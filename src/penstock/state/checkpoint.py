"""A checkpoint folder as its driver holds it: lease, manifest, commits, garbage.

    manifest.json   what cannot change: shards, flow, state layout
    lease/          lock and fencing number of the driver
    commit/         one file per tick, the last few
    state/NNN/      files of shard NNN, named by tick and attempt
    work/HOST/      working copies, can be deleted at any time when nothing runs

What no kept commit names is garbage. It is removed after a commit (files of the
commits just forgotten) and on opening (whatever an interrupted tick left).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.errors import FlowChanged, UnreadableSource
from penstock.state.chain import Chain
from penstock.state.commit import Commit, CommitLog
from penstock.state.files import damaged
from penstock.state.lease import Lease
from penstock.state.manifest import Compatible, Diff, Manifest


class Checkpoint:
    """An open checkpoint. `last` is the last commit, None before the first."""

    def __init__(self, folder: Path, lease: Lease, manifest: Manifest, log: CommitLog) -> None:
        self.folder = folder
        self.manifest = manifest
        self._lease = lease
        self._log = log
        self._fingerprint = manifest.fingerprint
        ticks = log.ticks()
        self.last: Commit | None = log.read(ticks[-1]) if ticks else None

    @classmethod
    def open(
        cls,
        folder: str | Path,
        *,
        fingerprint: str,
        description: Any,
        shards: int | None = None,
        layout: Any = None,
        diff: Diff | None = None,
        compatible: Compatible | None = None,
        durable: bool = True,
    ) -> Checkpoint:
        """Take the lease of a checkpoint, made if the folder has none.

        fingerprint, description: of the flow; the description is JSON and is what `diff` reads.
        shards:     None means what the checkpoint has, one for a new one.
        layout:     of the state: which slots lie where; must be equal in any case.
        compatible: whether a flow with another fingerprint may go on (old and new description).
        durable:    commits must survive a power cut; without it they survive their process.

        Raises `CheckpointInUse`, `FlowChanged`, `CheckpointDamaged`, `UnreadableSource`.
        """
        path = Path(folder).absolute()
        _make(path)
        lease = Lease.take(path)
        try:
            log = CommitLog(path, durable=durable)
            manifest = Manifest.read(path)
            if not log.ticks():
                # Nothing counts yet, so nothing binds.
                manifest = Manifest.new(shards or 1, fingerprint, description, layout)
                manifest.write(path)
            elif manifest is None:
                raise damaged(path / "manifest.json", "it is missing")
            else:
                _check_same(manifest, path, fingerprint, description, shards, layout, diff, compatible)
            checkpoint = cls(path, lease, manifest, log)
            checkpoint._fingerprint = fingerprint
            checkpoint._check_files()
            checkpoint._sweep()
        except BaseException:
            lease.release()
            raise
        return checkpoint

    @property
    def work(self) -> Path:
        """Where the working copies of this host are."""
        return work_folder(self.folder)

    @property
    def tick(self) -> int:
        """The last committed tick, 0 before the first."""
        return 0 if self.last is None else self.last.tick

    def chain(self, shard: int) -> Chain:
        return Chain() if self.last is None else self.last.chain(shard)

    def commit(
        self,
        chains: Mapping[int, Chain],
        *,
        positions: Any = None,
        outputs: Any = None,
        watermark: int | None = None,
        counters: Mapping[str, Any] | None = None,
    ) -> Commit:
        """Make the next tick count: `chains` are those of the shards that changed.

        Raises `CheckpointInUse` if another driver has taken over.
        """
        self._lease.check()
        before: Mapping[int, Chain] = self.last.chains if self.last else {}
        after = {**before, **{shard: chain for shard, chain in chains.items() if chain.links}}
        commit = Commit(
            self.tick + 1, self._lease.number, self._fingerprint, after, positions, outputs, watermark,
            counters or {},
        )  # fmt: skip
        self._log.write(commit)
        self.last = commit
        self._forget_old()
        return commit

    def close(self) -> None:
        self._lease.release()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_files(self) -> None:
        # By size only: whoever reads a file checks its content, and most are not read again soon.
        for file in () if self.last is None else self.last.files():
            path = self.folder / file.name
            try:
                size = path.stat().st_size
            except FileNotFoundError:
                raise damaged(path, "it is missing") from None
            if size != file.size:
                raise damaged(path, f"it has {size} bytes, the commit says {file.size}")

    def _forget_old(self) -> None:
        dropped = self._log.drop_old()
        if dropped:
            kept = {f.name for tick in self._log.ticks() for f in self._log.read(tick).files()}
            for name in {f.name for commit in dropped for f in commit.files()} - kept:
                (self.folder / name).unlink(missing_ok=True)

    def _sweep(self) -> None:
        kept = {f.name for tick in self._log.ticks() for f in self._log.read(tick).files()}
        for path in self.folder.glob("state/*/*"):
            if path.relative_to(self.folder).as_posix() not in kept:
                path.unlink(missing_ok=True)
        for path in self.folder.glob("commit/*.part"):
            path.unlink(missing_ok=True)


def work_folder(checkpoint: Path) -> Path:
    """Where the working copies of this host are, for a process that knows only the checkpoint."""
    return checkpoint / "work" / (socket.gethostname() or "host")


def _make(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(f"{path} is not writable")
    except OSError as error:
        raise UnreadableSource(
            f"the checkpoint folder {path} cannot be used", why=str(error), path=str(path)
        ) from error


def _check_same(
    manifest: Manifest,
    path: Path,
    fingerprint: str,
    description: Any,
    shards: int | None,
    layout: Any,
    diff: Diff | None,
    compatible: Compatible | None,
) -> None:
    if manifest.fingerprint != fingerprint:
        same_layout = manifest.layout == layout
        if not (same_layout and compatible is not None and compatible(manifest.description, description)):
            raise manifest.refuse(path, description, diff)
    if manifest.layout != layout and shards in (None, manifest.shards):
        raise FlowChanged(
            f"the checkpoint {path} keeps its state in other places than this version of Penstock would",
            why="the flow is the same; how its state is laid out has changed.",
            fix="go on with the version that wrote it, or start from an empty checkpoint",
            checkpoint=str(path),
            diff="state layout",
        )
    if shards is not None and shards != manifest.shards:
        raise FlowChanged(
            f"the checkpoint {path} has {manifest.shards} shards, not {shards}",
            why="the number of shards is fixed when a checkpoint is made.",
            fix=f"run with shards={manifest.shards}, or leave it out",
            checkpoint=str(path),
            diff=f"shards: {manifest.shards} -> {shards}",
        )
