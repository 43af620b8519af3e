"""State in a folder for a run in one process: one shard, one object.

A commit makes everything since the last one count at once: state, source
positions, outputs. After a crash the next `open` finds the last commit.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, MutableMapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeAlias

from penstock.state.checkpoint import Checkpoint
from penstock.state.commit import KEEP_TICKS
from penstock.state.manifest import Bind, Manifest
from penstock.state.shard import ShardState
from penstock.state.slots import Form
from penstock.state.sorted_files import make_durable

SlotsOf: TypeAlias = Callable[[Manifest], Mapping[str, Form]]


class DirectoryState:
    """Slots of a flow in a checkpoint folder. Make one with `open`."""

    def __init__(self, checkpoint: Checkpoint, shard: ShardState) -> None:
        self._checkpoint = checkpoint
        self._shard = shard
        self._attempt = uuid.uuid4().hex[:8]

    @classmethod
    def open(
        cls, folder: str | Path, bind: Bind, slots: SlotsOf, *, keep_ticks: int = KEEP_TICKS
    ) -> DirectoryState:
        """Open the checkpoint in `folder`, made if there is none, and hold its lease.

        bind:  says under what manifest to go on.
        slots: from that manifest to slot names, each with how its values are kept.

        Raises `CheckpointInUse`, `FlowChanged`, `CheckpointDamaged`, `UnreadableSource`.
        """
        checkpoint = Checkpoint.open(folder, bind, keep_ticks=keep_ticks)
        try:
            forms = slots(checkpoint.manifest)
            shard = ShardState(checkpoint.folder, checkpoint.work, 0, checkpoint.chain(0), forms)
        except BaseException:
            checkpoint.close()
            raise
        return cls(checkpoint, shard)

    @property
    def manifest(self) -> Manifest:
        """What the next commit is made under."""
        return self._checkpoint.manifest

    @property
    def slots(self) -> Mapping[str, MutableMapping[Any, Any]]:
        """The slots by name. The same objects until `close`."""
        return self._shard.slots

    @property
    def tick(self) -> int:
        """The last committed tick, 0 before the first."""
        return self._checkpoint.tick

    @property
    def positions(self) -> dict[str, Any]:
        """The source positions of the last commit, {} before the first."""
        last = self._checkpoint.last
        return dict(last.positions or {}) if last else {}

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of the last commit, to be published again after a crash; {} before the first."""
        last = self._checkpoint.last
        return dict(last.outputs or {}) if last else {}

    @property
    def bytes(self) -> int:
        """The size of the files that hold the last committed state."""
        last = self._checkpoint.last
        return 0 if last is None else last.state_bytes

    @property
    def folder(self) -> Path:
        return self._checkpoint.folder

    def commit(
        self,
        *,
        positions: Mapping[str, Any],
        outputs: Mapping[str, Any] | None = None,
        counters: Mapping[str, Any] | None = None,
    ) -> int:
        """Make the next tick count: the slots as they are, positions and outputs (JSON). Its number.

        Raises `CheckpointInUse` if another process has taken over; nothing counts then.
        """
        chain = self._shard.finish(self.tick + 1, self._attempt)
        make_durable(self._shard.written)
        commit = self._checkpoint.commit(
            {0: chain}, positions=dict(positions), outputs=dict(outputs or {}), counters=counters
        )
        self._shard.advance(commit.chain(0))
        return commit.tick

    def discard(self) -> None:
        """Forget what was changed in the slots since the last commit."""
        self._shard.discard()

    def close(self) -> None:
        """Let go of the checkpoint; what was not committed is lost."""
        self._shard.close()
        self._checkpoint.close()

    def __enter__(self) -> DirectoryState:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
