"""Checkpoint folder as used by a driver: lease, manifest, commits, garbage collection.

    lease/          lock and fencing number of the driver
    commit/         one file per tick, the last few
    manifest/       what they were made under: flow, shards, where state lies
    state/NNN/      files of shard NNN, named by tick and attempt

What no kept commit names is garbage. It is removed after a commit (files of the
commits just forgotten) and on opening (whatever an interrupted tick left).

`DirectoryState` is the checkpoint of a run in a single process: one shard, one object. `erase` writes a
checkpoint anew, so that none of its files holds values that its state has not. A tick adds a file, and what
it took back stays in the files before until they are merged. Erasure writes the entries of all shards to new
files and gives up what a rewind would go back to. The values go, too, that an operator has put aside in case
a late record brings them back (`Erasable`).
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from headrace.errors import BadInput, UnreadableSource
from headrace.file_system import local_path, make_private_folder
from headrace.state.arranged_store import ArrangedForm, stored_entries
from headrace.state.batch_files import forget_folder
from headrace.state.chain import BatchChain, FileRef, check_size, damaged, make_durable
from headrace.state.codec import without_erasable
from headrace.state.commit import KEEP_TICKS, Commit, CommitLog, Lease
from headrace.state.lazy_slots import MARK, Form
from headrace.state.manifest import Bind, Manifest, as_it_is
from headrace.state.rewind import check_not_rewinding
from headrace.state.shard import ShardState, ShardWriter


class Checkpoint:
    """An open checkpoint.

    `last` is the last commit, or None before the first; `manifest` applies to the next.
    """

    manifest: Manifest

    def __init__(
        self, folder: Path, lease: Lease, log: CommitLog, last: Commit | None, *, durable: bool
    ) -> None:
        self.folder = folder
        self.last = last
        self._lease = lease
        self._log = log
        self._durable = durable
        self._keep_ticks = KEEP_TICKS
        self._bound: tuple[Manifest, FileRef] | None = (
            None if last is None else (Manifest.read(folder, last.manifest), last.manifest)
        )

    @classmethod
    def open(
        cls,
        folder: str | Path,
        bind: Bind,
        *,
        keep_ticks: int = KEEP_TICKS,
        durable: bool = True,
        private: bool = True,
    ) -> Checkpoint:
        """Acquire the lease of a checkpoint, creating the folder's contents if missing.

        bind:       says under what manifest to go on.
        keep_ticks: to how many ticks one can go back (`rewind`, a reader of state), the last one included.
        durable:    commits must survive a power cut; without it they survive their process.
        private:    a new folder is of its owner alone; not where hosts write to it under several accounts.

        Raises `CheckpointInUse`, `FlowChanged`, `CheckpointDamaged`, `UnreadableSource`.
        """
        if keep_ticks < 1:
            raise BadInput(
                f"keep_ticks is {keep_ticks}",
                why="the last tick is always kept: a run could not go on without it.",
                fix="keep_ticks=1, or more to be able to go back",
                option="keep_ticks",
            )
        path = Path(folder).absolute()
        _make(path, private=private)
        lease = Lease.take(path)
        try:
            check_not_rewinding(path)
            log = CommitLog(path, durable=durable)
            log.drop_unfinished()
            last = log.last()
            if last is None:
                _check_none_lost(path)
            checkpoint = cls(path, lease, log, last, durable=durable)
            checkpoint._keep_ticks = keep_ticks
            checkpoint._check_files()
            checkpoint._bind(bind)
            checkpoint._sweep()
        except BaseException:
            lease.release()
            raise
        return checkpoint

    def _bind(self, bind: Bind) -> None:
        old = None if self._bound is None else self._bound[0]
        new = bind(self.folder, old, self.tick)
        new = new.of("" if old is None else old.id)
        self.manifest = new
        if new != old:
            self._bound = None

    @property
    def tick(self) -> int:
        """Number of the last committed tick; 0 before the first."""
        return 0 if self.last is None else self.last.tick

    def chain(self, shard: int) -> BatchChain:
        return BatchChain() if self.last is None else self.last.chain(shard)

    @property
    def sources(self) -> BatchChain:
        """Chain of source positions."""
        return BatchChain() if self.last is None else self.last.sources

    def commit(
        self,
        chains: Mapping[int, BatchChain],
        *,
        positions: Any = None,
        outputs: Any = None,
        counters: Mapping[str, Any] | None = None,
        sources: BatchChain | None = None,
    ) -> Commit:
        """Commit the next tick; `chains` are those of changed shards, `sources` that of changed positions.

        Raises `CheckpointInUse` if another driver has taken over.
        """
        self.check_lease()
        before: Mapping[int, BatchChain] = self.last.chains if self.last else {}
        after = {shard: chain for shard, chain in {**before, **chains}.items() if any(chain.files())}
        tick = self.tick + 1
        was_oldest = tick if self.last is None else self.last.oldest
        commit = Commit(
            tick, self._lease.number, self._manifest(), max(was_oldest, tick - self._keep_ticks + 1),
            after, positions, outputs, counters or {}, self.sources if sources is None else sources,
        )  # fmt: skip
        self._log.write(commit, self.check_lease)
        self.last = commit
        self._forget_old()
        return commit

    def move(self, chains: Mapping[int, BatchChain], counters: Mapping[str, Any]) -> Commit:
        """Atomically replace the last commit with one whose state is in `chains`, under the new manifest.

        Earlier ticks keep their own chains and manifest.
        Raises `CheckpointInUse` if another driver has taken over.
        """
        assert self.last is not None, "there is something to move"
        self.check_lease()
        moved = replace(
            self.last, fence=self._lease.number, manifest=self._manifest(), chains=dict(chains),
            counters=dict(counters),
        )  # fmt: skip
        self._log.replace(moved, self.check_lease)
        self.last = moved
        self._sweep()
        return moved

    def rewrite(self, chains: Mapping[int, BatchChain], sources: BatchChain) -> Commit:
        """Atomically replace all commits with the last one, whose state is in other files.

        Raises `CheckpointInUse` if another driver has taken over.
        """
        assert self.last is not None, "there is something to rewrite"
        self.check_lease()
        made = replace(
            self.last, fence=self._lease.number, oldest=self.tick, chains=dict(chains), sources=sources
        )
        self._log.replace(made, self.check_lease)
        self.last = made
        self._forget_old()
        self._sweep()
        return made

    def renumber(self, tick: int) -> Commit:
        """Give the last commit a number unless its own is later, and drop the rest. Raises like `commit`."""
        assert self.last is not None, "there is something to renumber"
        self.check_lease()
        number = max(tick, self.tick)
        made = replace(self.last, tick=number, oldest=number, fence=self._lease.number)
        write = self._log.replace if number == self.tick else self._log.write
        write(made, self.check_lease)
        self.last = made
        self._forget_old()
        return made

    def _manifest(self) -> FileRef:
        if self._bound is None:
            self._bound = (self.manifest, self.manifest.write(self.folder, durable=self._durable))
        return self._bound[1]

    def check_lease(self) -> None:
        """Raise `CheckpointInUse` if another process has taken over the lease."""
        self._lease.check()

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
            check_size(self.folder / file.name, file)

    def _forget_old(self) -> None:
        assert self.last is not None
        dropped = [self._log.drop(tick) for tick in self._log.ticks() if tick < self.last.oldest]
        if dropped:
            kept = self._log.files()
            for name in {f.name for commit in dropped for f in commit.files()} - kept:
                (self.folder / name).unlink(missing_ok=True)

    def _sweep(self) -> None:
        kept = self._log.files()
        for path in (*self.folder.glob("state/*/*"), *self.folder.glob("manifest/*")):
            if path.relative_to(self.folder).as_posix() not in kept:
                path.unlink(missing_ok=True)


def _make(path: Path, *, private: bool) -> None:
    try:
        if private:
            make_private_folder(path)
        (path / "commit").mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise PermissionError(f"{path} is not writable")
    except OSError as error:
        raise UnreadableSource(
            f"the checkpoint folder {path} cannot be used",
            why=str(error),
            fix="give a folder that can be written; it is created if it is missing",
            path=str(path),
        ) from error


def _check_none_lost(path: Path) -> None:
    """Raise `CheckpointDamaged` if there are no commits but traces of earlier ones."""
    last = max((file.name for file in path.glob("state/*/*")), default="")
    number = last.partition("-")[0]
    if number.isdigit() and int(number) > 1:
        raise damaged(path / "commit", f"its commits are missing, and {last} is of a later tick")


SlotsOf: TypeAlias = Callable[[Manifest], Mapping[str, Form | ArrangedForm]]


class DirectoryState:
    """Slots of a flow, stored in a checkpoint folder. Use `open` to create one."""

    def __init__(self, checkpoint: Checkpoint, shard: ShardState) -> None:
        self._checkpoint = checkpoint
        self._shard = shard
        self._attempt = uuid.uuid4().hex[:8]

    @classmethod
    def open(
        cls, folder: str | Path, bind: Bind, slots: SlotsOf, *, keep_ticks: int = KEEP_TICKS
    ) -> DirectoryState:
        """Open the checkpoint in `folder`, creating it if missing, and hold its lease.

        bind:  says under what manifest to go on.
        slots: from that manifest to slot names, each with how its values are kept.

        Raises `CheckpointInUse`, `FlowChanged`, `CheckpointDamaged`, `UnreadableSource`.
        """
        checkpoint = Checkpoint.open(folder, bind, keep_ticks=keep_ticks)
        try:
            forms = slots(checkpoint.manifest)
            shard = ShardState(checkpoint.folder, 0, checkpoint.chain(0), forms)
        except BaseException:
            checkpoint.close()
            raise
        return cls(checkpoint, shard)

    @property
    def manifest(self) -> Manifest:
        """Manifest of the next commit."""
        return self._checkpoint.manifest

    @property
    def slots(self) -> Mapping[str, MutableMapping[Any, Any]]:
        """Slots by name. The objects stay the same until `close`."""
        return self._shard.slots

    @property
    def tick(self) -> int:
        """Number of the last committed tick; 0 before the first."""
        return self._checkpoint.tick

    @property
    def bytes(self) -> int:
        """Size of the files that hold the last committed state."""
        last = self._checkpoint.last
        return 0 if last is None else last.state_bytes

    @property
    def folder(self) -> Path:
        return self._checkpoint.folder

    def commit(self) -> int:
        """Commit the next tick with the current slots; return its number.

        Raises `CheckpointInUse` if another process has taken over; nothing is committed then.
        """
        chain = self._shard.finish(self.tick + 1, self._attempt)
        make_durable(self._shard.written)
        commit = self._checkpoint.commit({0: chain})
        self._shard.advance(commit.chain(0))
        return commit.tick

    def close(self) -> None:
        """Release the checkpoint; uncommitted changes are lost."""
        self._shard.close()
        # The disk has the space of a deleted checkpoint again once nobody maps its files.
        forget_folder(self._checkpoint.folder)
        self._checkpoint.close()

    def __enter__(self) -> DirectoryState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Erased:
    """Result of an erasure. tick: the last one, now the only one. before, after: bytes of state files."""

    tick: int
    before: int
    after: int


def erase(checkpoint: str | PathLike[str]) -> Erased:
    """Erase all values that are not in the state as of the last tick. The flow must not be running.

    If interrupted, the checkpoint is as before, or erased but for files that the next erasure removes.

    Raises `CheckpointInUse`, `CheckpointDamaged`; `FlowChanged` where there is no checkpoint.
    """
    folder = Path(local_path(checkpoint, "checkpoint")).absolute()
    # A folder without a checkpoint is not to become one.
    if not (folder / "commit").is_dir():
        as_it_is(folder, None, 0)
    with Checkpoint.open(folder, as_it_is) as held:
        last = held.last
        assert last is not None
        name = f"{last.tick:012d}-{uuid.uuid4().hex[:8]}"
        chains = {
            shard: _anew(folder, f"state/{shard:03d}/{name}", chain, held.manifest)
            for shard, chain in last.chains.items()
        }
        made = held.rewrite(chains, _anew(folder, f"state/sources/{name}", last.sources, held.manifest))
    return Erased(made.tick, last.state_bytes, made.state_bytes)


def _anew(folder: Path, name: str, chain: BatchChain, manifest: Manifest) -> BatchChain:
    """Write the state of a shard to new files named `name`; return the chain of only these files."""
    writer = ShardWriter(folder, name)
    for slot, key, value in stored_entries(folder, chain):
        # A header of chunks is no encoded value. It holds no `Erasable`: upsert and history never divide
        # theirs.
        writer.add(slot, key, value if value.startswith(MARK) else without_erasable(value))
    for slot, form in manifest.arranged(chain):
        for piece in form.pieces(folder, chain.arranged[slot]):
            writer.add_rows(slot, form.layout, piece.erased)
    made = writer.finish()
    make_durable([folder / file.name for file in made.files()])
    return made
