"""State of a single-process run in a checkpoint folder: one shard, one object.

A commit makes all changes since the last one durable at once. After a crash, the next `open` finds the last
commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from headrace.state.arranged_store import ArrangedForm
from headrace.state.checkpoint import Checkpoint
from headrace.state.checkpoint_files import make_durable
from headrace.state.commit import KEEP_TICKS
from headrace.state.lazy_slots import Form
from headrace.state.manifest import Bind, Manifest
from headrace.state.mapped_files import forget_folder
from headrace.state.shard import ShardState

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
