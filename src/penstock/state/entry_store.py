"""Entries of one shard, over the batches of its chain.

A tick's changes become one file. Small batches before it are merged into it in memory. Merges of larger ones
advance with each tick, by as much as the tick has added and some more, and end in a later one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from penstock.state import entries as columns
from penstock.state.chain import Batch, Chain, Merge, Part
from penstock.state.entries import (
    ABSENT,
    LAST_CODE,
    Columns,
    EntryFile,
    EntryFiles,
    Places,
    entry_files,
    write_entries,
)
from penstock.state.merging import AT_ONCE, Merging, Step

Entry: TypeAlias = tuple[str, bytes, bytes]
"""Slot, encoded key, encoded value."""
Changes: TypeAlias = Iterable[tuple[str, Sequence[bytes], Sequence[bytes | None]]]
"""Changed keys per slot, and their values; None for a removed key."""

_KEYS_AT_ONCE = 10_000


class EntryStore:
    """A shard's entries as of `chain`. folder: what its file names are relative to.

    files: those that are mapped already.

    Raises `CheckpointDamaged` at once for a file that is missing or cut off, and for one that was altered
    when it is read.
    """

    def __init__(self, folder: Path, chain: Chain, files: EntryFiles | None = None) -> None:
        self.folder = folder
        self._files = files or entry_files(folder)
        self.advance(chain)

    def advance(self, chain: Chain) -> None:
        """Continue at another chain."""
        self._files.keep(part for batch in chain.batches for part in batch.parts)
        self.chain = chain
        self._slots = {name: (number, columns.seed_of(name)) for number, name in enumerate(chain.slots)}
        self._newest_first = [_OpenBatch(self._files, batch) for batch in chain.batches][::-1]

    def close(self) -> None:
        """Release the files. May be called again, and after an `advance` that failed."""
        self.__dict__.pop("_newest_first", None)

    def load(self, slot: str, key: bytes) -> bytes | None:
        """Read the value of a key; None if absent."""
        known = self._slots.get(slot)
        if known is None:
            return None
        number, seed = known
        code = columns.code_of(key, seed)
        for batch in self._newest_first:
            file = batch.only or batch.file(code)
            codes = file.codes
            at = bisect_left(codes, code)
            if at < len(codes) and codes[at] == code:
                value: Any = file.find(at, number, key)
                if value is not ABSENT:
                    return value
        return None

    def load_many(self, slot: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """Read the values of many keys, in one search per file."""
        values: list[Any] = [None] * len(keys)
        known = self._slots.get(slot)
        if known is None or not keys:
            return values
        number, seed = known
        asked = columns.columns_of(number, seed, keys, values)
        left: Places = np.argsort(columns.codes_of(asked))
        for batch in self._newest_first:
            resolved = np.zeros(len(left), np.bool_)
            for file, own in batch.searched(columns.codes_of(asked)[left]):
                found, file_values = file.find_many(asked, left[own])
                resolved[own] = found
                for place, value in zip(left[own[found]].tolist(), file_values, strict=True):
                    values[place] = value
            left = left[~resolved]
        return values

    # --- writing ----------------------------------------------------------------------------------

    def write(self, name: str, changes: Changes) -> tuple[Chain, list[Path]]:
        """Write changes to files named `name` and something; return the next chain and the files.

        The store stays at its chain.
        """
        named = {slot: number for slot, (number, _) in self._slots.items()}
        made = [
            columns.columns_of(named.setdefault(slot, len(named)), columns.seed_of(slot), keys, values)
            for slot, keys, values in changes
        ]
        step = Step(EntryMerging(self._files), name, list(self.chain.runs))
        step.add(columns.merged(made, whole=False))
        chain = replace(self.chain, runs=tuple(step.runs), slots=tuple(named))
        return chain, step.kept(self.folder)

    # --- all entries -----------------------------------------------------------------------------

    def entries(self, wanted: Callable[[str], bool] = lambda slot: True) -> Iterator[Entry]:
        """Read all entries of the wanted slots, in the order of slots and keys."""
        files = [batch.open(at) for batch in reversed(self._newest_first) for at in range(len(batch.parts))]
        if not files:
            return
        starts = [0, *accumulate(len(file.entries) for file in files)]
        for name, (number, _) in sorted(self._slots.items()):
            if not wanted(name):
                continue
            keys, places = columns.in_order([file.entries for file in files], number)
            for first in range(0, len(keys), _KEYS_AT_ONCE):
                some = slice(first, first + _KEYS_AT_ONCE)
                for key, place in zip(keys[some].to_pylist(), places[some].tolist(), strict=True):
                    at = bisect_right(starts, place) - 1
                    value = files[at].value(place - starts[at])
                    if value is not None:
                        yield name, key, value


class _OpenBatch:
    """A batch whose files are mapped when they are first read.

    only: its file, once it is mapped, if it is the only one.
    """

    __slots__ = ("_ends", "_files", "_mapped", "only", "parts")

    def __init__(self, mapped: EntryFiles, batch: Batch) -> None:
        self._mapped = mapped
        self.parts = batch.parts
        self._ends = [part.upto for part in batch.parts[:-1]]
        self._files: list[EntryFile | None] = [None] * len(batch.parts)
        self.only: EntryFile | None = None

    def file(self, code: int) -> EntryFile:
        """Return the file in which a code would be."""
        at = bisect_left(self._ends, code)
        return self._files[at] or self.open(at)

    def open(self, at: int) -> EntryFile:
        found = self._files[at] = self._mapped.open(self.parts[at])
        if len(self.parts) == 1:
            self.only = found
        return found

    def searched(self, codes: columns.Codes) -> Iterator[tuple[EntryFile, Places]]:
        """Return the files in which sorted codes would be, with the places of these codes."""
        if len(self.parts) == 1:
            yield self._files[0] or self.open(0), np.arange(len(codes))
            return
        ends = np.searchsorted(codes, np.array(self._ends, np.uint64), "right")
        for at, own in enumerate(np.split(np.arange(len(codes)), ends)):
            if len(own):
                yield self._files[at] or self.open(at), own


@dataclass(frozen=True, slots=True)
class EntryMerging(Merging[Columns]):
    """Merging of entries. files: of their shard."""

    files: EntryFiles
    first: int = -1
    last: int = LAST_CODE

    def open(self, part: Part) -> Columns:
        return self.files.open(part).entries

    def write(self, name: str, rows: Columns) -> Part:
        return write_entries(self.files, name, rows)

    def size(self, rows: Columns) -> int:
        return rows.nbytes

    def merged(self, pieces: Sequence[Columns], *, whole: bool) -> Columns:
        return columns.merged(pieces, whole=whole)

    def between(self, rows: Columns, after: int, upto: int) -> Columns:
        return columns.between(rows, after, upto)

    def divided(self, rows: Columns, most: int) -> Iterable[Columns]:
        return columns.batches_of(rows, most)

    def end(self, merge: Merge, budget: int) -> int:
        # Codes are hashes: a share of them is a share of the bytes.
        span = (LAST_CODE + 1) * budget // max(1, merge.first.size + merge.second.size)
        return min(LAST_CODE, merge.upto + max(1, span))


class EntryWriter:
    """Writer of a new chain, given entries in any order, each key once.

    name: of its files below `folder`, and something.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self._store = EntryStore(folder, Chain())
        self._waiting: dict[str, dict[bytes, bytes]] = {}
        self._bytes = self._times = 0

    def add(self, slot: str, key: bytes, value: bytes) -> bool:
        """Add an entry; return whether its key was there already."""
        of_slot = self._waiting.setdefault(slot, {})
        known = key in of_slot or self._store.load(slot, key) is not None
        of_slot[key] = value
        self._bytes += len(key) + len(value)
        if self._bytes > AT_ONCE:  # of each new shard
            self._write()
        return known

    def finish(self) -> Chain:
        """Write the rest and return the chain. Call `make_durable` before a commit names its files."""
        self._write()
        return self._store.chain

    def _write(self) -> None:
        changes = [(slot, [*of_slot], [*of_slot.values()]) for slot, of_slot in self._waiting.items()]
        replace_chain(self._store, f"{self._name}.{self._times}", changes)
        self._waiting, self._bytes = {}, 0
        self._times += 1


def replace_chain(store: EntryStore, name: str, changes: Changes) -> None:
    """Write changes to a store that no commit names, and remove the files that it then reads no more."""
    before = store.chain
    chain, _ = store.write(name, changes)
    store.advance(chain)
    kept = {file.name for file in chain.files()}
    for file in before.files():
        if file.name not in kept:
            (store.folder / file.name).unlink(missing_ok=True)
