"""Slots of a run without a checkpoint that exceed its memory: most values are in scratch files."""

from __future__ import annotations

import tempfile
import weakref
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

from penstock.state.chain import Chain
from penstock.state.codec import decode, key_encoder, value_encoder
from penstock.state.entry_store import EntryStore, replace_chain
from penstock.state.lazy_slots import LazySlot, Thaw


class ScratchFolder:
    """Files with the values of any number of slots, in the system's temporary folder.

    They belong to one process, are never synced, and disappear with the process.
    """

    def __init__(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True)
        self._store = EntryStore(Path(folder.name), Chain())
        self.close = weakref.finalize(self, folder.cleanup)
        self._slots = self._times = 0
        self.encode_key = key_encoder()
        self.encode = value_encoder()

    def add_slot(self) -> str:
        """Allocate a slot and return its name."""
        self._slots += 1
        return str(self._slots)

    def read(self, slot: str, key: bytes) -> bytes | None:
        return self._store.load(slot, key)

    def write(self, slot: str, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write values; None deletes one."""
        keys, values = zip(*entries, strict=True)
        self._times += 1
        replace_chain(self._store, str(self._times), [(slot, keys, values)])


class SpilledSlot(LazySlot):
    """A slot that keeps about `hot_entries` values in memory between ticks, and the rest in scratch files.

    Everything touched within a tick stays in memory, so values may be mutated in place. At the end of the
    tick, `settle` writes out the values that were loaded longest ago.
    """

    __slots__ = ("_files", "_slot", "_thaw", "hot_entries")

    def __init__(self, files: ScratchFolder, values: dict[Any, Any], thaw: Thaw, hot_entries: int) -> None:
        self._slot = files.add_slot()
        super().__init__(f"{self._slot} in scratch files", values)
        self._files = files
        self._thaw = thaw
        self.hot_entries = hot_entries

    @property
    def entries_in_memory(self) -> int:
        return len(self._live)

    def bytes_in_memory(self, estimate: Callable[[dict[Any, Any]], int]) -> int:
        """Estimate the size of the entries in memory."""
        return estimate(self._live)

    def settle(self) -> None:
        """At the end of a tick, spill the older half of the values if over the limit."""
        hot = self._live
        if len(hot) <= self.hot_entries:
            return
        leaving = list(islice(hot, len(hot) - self.hot_entries // 2))
        encode_key, encode = self._files.encode_key, self._files.encode
        self._files.write(
            self._slot,
            ((encode_key(key), None if (v := hot[key]) is None else encode(v)) for key in leaving),
        )
        for key in leaving:
            del hot[key]

    def _fetch(self, key: Any) -> Any:
        data = self._files.read(self._slot, self._files.encode_key(key))
        value = None if data is None else self._thaw(decode(data))
        self._live[key] = value
        return value
