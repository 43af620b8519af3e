"""Spill: slots that keep most of their values in a file, for state larger than memory.

The file is a scratch file of one process: it is made anew, never synced, and gone
with the process. What must survive is a checkpoint's business (`directory.py`).
"""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from penstock.state import entry_table
from penstock.state.codec import decode, key_encoder, value_encoder
from penstock.state.slots import LoadedSlot, Thaw


class SpillFile:
    """A scratch file for the values of any number of slots, where the system keeps temporary files."""

    def __init__(self) -> None:
        # Without a name SQLite makes a file that nobody else sees and that goes with the connection.
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._connection.execute("PRAGMA journal_mode=OFF")
        self._connection.execute("PRAGMA synchronous=OFF")
        self._connection.execute(entry_table.CREATE)
        self.close = weakref.finalize(self, self._connection.close)
        self._slots = 0
        self.encode_key = key_encoder()
        self.encode = value_encoder()

    def add_slot(self) -> int:
        """A number for one more slot."""
        self._slots += 1
        return self._slots

    def read(self, slot: int, key: bytes) -> bytes | None:
        return entry_table.read(self._connection, slot, key)

    def write(self, slot: int, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Put values in place of what was there; None removes."""
        self._connection.execute("BEGIN")
        for key, value in entries:
            entry_table.put(self._connection, slot, key, value)
        self._connection.execute("COMMIT")


class SpilledSlot(LoadedSlot):
    """A slot that keeps at most about `hot_entries` values in memory between ticks.

    Within a tick everything that was touched stays in memory, so a value may be
    changed in place; `settle` at the end of the tick writes out the values that were
    loaded longest ago.
    """

    __slots__ = ("_file", "_slot", "_thaw", "hot_entries")

    def __init__(self, file: SpillFile, values: dict[Any, Any], thaw: Thaw, hot_entries: int) -> None:
        self._slot = file.add_slot()
        super().__init__(f"{self._slot} in the scratch file", values)
        self._file = file
        self._thaw = thaw
        self.hot_entries = hot_entries

    @property
    def entries_in_memory(self) -> int:
        return len(self._live)

    def bytes_in_memory(self, estimate: Callable[[dict[Any, Any]], int]) -> int:
        """What `estimate` says of the entries that are in memory."""
        return estimate(self._live)

    def settle(self) -> None:
        """At the end of a tick: write out the older half of what is in memory, if that is too much."""
        hot = self._live
        if len(hot) <= self.hot_entries:
            return
        leaving = list(islice(hot, len(hot) - self.hot_entries // 2))
        encode_key, encode = self._file.encode_key, self._file.encode
        self._file.write(
            self._slot,
            ((encode_key(key), None if (v := hot[key]) is None else encode(v)) for key in leaving),
        )
        for key in leaving:
            del hot[key]

    def _fetch(self, key: Any) -> Any:
        data = self._file.read(self._slot, self._file.encode_key(key))
        value = None if data is None else self._thaw(decode(data))
        self._live[key] = value
        return value
