"""State of a run without a checkpoint that exceeds its memory: slots over scratch files."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from headrace.state.arranged_store import ArrangedForm
from headrace.state.chain import Chain
from headrace.state.lazy_slots import Form
from headrace.state.mapped_files import forget_folder
from headrace.state.shard import ShardState


class ScratchFolder:
    """Files of any number of slots, in the system's temporary folder.

    They belong to one process, are never synced, and disappear with the process.
    """

    def __init__(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="headrace-", ignore_cleanup_errors=True)
        self.path = Path(folder.name)
        self.close = weakref.finalize(self, _remove, folder, self.path)
        self._slots = 0

    def add_slot(self, form: Form | ArrangedForm) -> ScratchSlot:
        """Make an empty slot."""
        self._slots += 1
        return ScratchSlot(ShardState(self.path, str(self._slots), Chain(), {"slot": form}), self)


def _remove(folder: tempfile.TemporaryDirectory[str], path: Path) -> None:
    # The disk has the space of a file again once nobody maps it.
    forget_folder(path)
    folder.cleanup()


class ScratchSlot:
    """A slot of which what was touched lately is in memory, and all the rest in scratch files.

    mapping: the slot, for whoever reads and writes it.
    most:    number of entries and rows above which `settle` writes all that are in memory to files.
    """

    def __init__(self, state: ShardState, folder: ScratchFolder, most: int = 0) -> None:
        self._state = state
        self._folder = folder
        self._chain = Chain()
        self._times = 0
        self.mapping = state.slots["slot"]
        self.most = most

    @property
    def in_memory(self) -> Mapping[Any, Any]:
        """Return the entries in memory."""
        return self.mapping.in_memory

    @property
    def is_empty(self) -> bool:
        """Return whether no file holds anything."""
        return not any(self._chain.files())

    def settle(self) -> None:
        """At the end of a tick, write what is in memory to files if it is too much."""
        if len(self.in_memory) + self._state.unwritten_rows() > self.most:
            self.write()

    def write(self) -> None:
        """Write all that is in memory to files."""
        self._times += 1
        before = self._chain
        self._chain = self._state.finish(self._times, "s")
        self._state.advance(self._chain)
        kept = {file.name for file in self._chain.files()}
        for file in before.files():
            if file.name not in kept:
                (self._folder.path / file.name).unlink(missing_ok=True)
