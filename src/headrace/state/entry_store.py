"""Entries of a shard: the values of slots that are no columns, encoded, in an arrangement of their own.

A row is an encoded key behind the number of its slot, and an encoded value, or null for a removed key. Of the
rows of a key the newest counts. One arrangement has the entries of all slots, so that a tick adds one file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import TypeAlias

import numpy as np
import polars as pl
from xxhash import xxh3_64_intdigest

from headrace.arrangement.batch import Batch, Layout, batch_of, stacked
from headrace.arrangement.reading import RowReaders
from headrace.arrangement.spine import Spine
from headrace.state.arranged_store import ArrangedForm, pieces_of
from headrace.state.chain import ENTRIES, Chain
from headrace.state.lazy_slots import Slot

Entry: TypeAlias = tuple[str, bytes, bytes]
"""Slot, encoded key, encoded value."""

LAYOUT = Layout({"key": pl.Binary(), "value": pl.Binary()}, ("key",), (), nullable=False, latest=True)
_NUMBER = Struct(">H")


def code_of(key: bytes) -> int:
    """Return the code of a row's key. That of the layout would take as long as all else of a search."""
    return xxh3_64_intdigest(key) >> 1


class EntryStore:
    """Slots over the entries of a shard. numbers: of the slots that may have entries, encoded."""

    def __init__(self, spine: Spine) -> None:
        self.spine = spine
        self.slots: dict[str, Slot] = {}
        self.numbers: dict[str, bytes] = {}
        self._readers = RowReaders(spine, tuple(LAYOUT.types))

    def number(self, slots: Iterable[str]) -> None:
        """Take the slot numbers of a chain."""
        self.numbers = {name: _NUMBER.pack(number) for number, name in enumerate(slots)}

    def load(self, slot: str, key: bytes) -> bytes | None:
        """Read the value of a key; None if absent."""
        number = self.numbers.get(slot)
        if number is None:
            return None
        key = number + key
        code = code_of(key)
        for reader in reversed(self._readers.current()):
            for at in reader.places(code):
                found, value = reader.row(at)
                if found == key:
                    return value
        return None

    def batch(self, changes: Iterable[tuple[str, Sequence[bytes], Sequence[bytes | None]]]) -> Batch:
        """Return changed entries, per slot keys and values, as rows; None for a removed key."""
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for slot, own, new in changes:
            number = self.numbers.setdefault(slot, _NUMBER.pack(len(self.numbers)))
            keys += [number + key for key in own]
            values += new
        columns = [pl.Series("key", keys, pl.Binary), pl.Series("value", values, pl.Binary)]
        codes = np.fromiter(map(code_of, keys), np.int64, len(keys))
        return batch_of(LAYOUT, pl.DataFrame(columns), codes=codes)

    def settle(self) -> None:
        """Write all changes of the slots into the arrangement."""
        changes = [(name, *slot.changes()) for name, slot in sorted(self.slots.items())]
        changes = [change for change in changes if change[1]]
        if changes:
            self.spine.add_batch(self.batch(changes))

    def discard(self) -> None:
        """Forget values that are not in the arrangement."""
        # Readers of batches that are gone would keep their files.
        self._readers.current()
        for slot in self.slots.values():
            slot.discard()


FORM = ArrangedForm(LAYOUT, EntryStore)


def stored_entries(
    folder: Path, chain: Chain, wanted: Callable[[str], bool] = lambda slot: True
) -> Iterator[Entry]:
    """Read all entries of the wanted slots, in the order of slots and keys. Raises `CheckpointDamaged`."""
    numbers = sorted((slot, _NUMBER.pack(at)) for at, slot in enumerate(chain.slots) if wanted(slot))
    if not numbers:
        return
    of_one = [pl.col("key").bin.starts_with(number) for _, number in numbers]
    pieces = pieces_of(folder, LAYOUT, chain.arranged.get(ENTRIES, ()))
    found = [piece.frame.filter(pl.any_horizontal(of_one)) for piece in pieces]
    rows = stacked([*found, pl.DataFrame(schema=LAYOUT.types)])
    for (slot, _), condition in zip(numbers, of_one, strict=True):
        own = rows.filter(condition).sort("key")
        yield from ((slot, key[_NUMBER.size :], value) for key, value in own.iter_rows())
