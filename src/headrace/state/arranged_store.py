"""Arrangements of the slots of a shard, over the batches of its chain.

Slots whose values are no columns share one arrangement of *entries*. A row of it is an encoded key behind the
number of its slot, and an encoded value, or null for a removed key. Of the rows of a key the newest counts.
One arrangement has the entries of all slots, so that a tick adds one file.

*Merging* rewrites batches a bit per tick, in proportion to what the tick adds. Small batches before a new one
are merged into it in memory. Several larger ones are merged at once, so that a row is moved once for about
each time that their number doubles twice. Such merges advance with each tick, and end in a later one; until
then the batches are read as before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from struct import Struct
from typing import Protocol, TypeAlias

import numpy as np
import polars as pl
from xxhash import xxh3_64_intdigest

from headrace.arrangement.batch import Layout, SortedBatch, batch_of, bounded, concat_frames, merged
from headrace.arrangement.reading import RowReaders, ranges
from headrace.arrangement.spine import RATIO, Spine
from headrace.state.batch_files import MappedFiles, kept_files
from headrace.state.chain import ENTRIES, BatchChain, Part, Run, StoredBatch, UnfinishedMerge, parts_of
from headrace.state.lazy_slots import StateSlot

_MAX_ROWS = 1 << 20
"""Rows that are read at once, about."""


class ArrangedMapping(Protocol):
    """Slot backed by an arrangement, to which some of its entries may not have been written yet."""

    def settle(self) -> None:
        """Write all entries into the arrangement."""
        ...

    def discard(self) -> None:
        """Discard entries that are not in the arrangement."""
        ...


@dataclass(frozen=True, slots=True)
class ArrangedForm:
    """Storage form of a slot backed by an arrangement.

    slot:     creates the slot over it.
    describe: returns the description of its columns (`DescribedRows`).
    """

    layout: Layout
    slot: Callable[[Spine], ArrangedMapping]
    describe: Callable[[], str] = str


class ArrangedStore:
    """Arrangement of one slot, as of given runs of a chain.

    name: of the store, unique among all folders.

    Raises `CheckpointDamaged` for a file that is missing, cut off or altered.
    """

    def __init__(self, folder: Path, name: str, form: ArrangedForm, runs: Sequence[Run]) -> None:
        self._files = kept_files(folder, name, form.layout)
        self._layout = form.layout
        self.spine = Spine(form.layout, merges=False)
        self.slot = form.slot(self.spine)
        self.advance(runs)

    def advance(self, runs: Sequence[Run]) -> None:
        """Continue from other runs."""
        self._runs = tuple(runs)
        parts = parts_of(runs)
        self._files.keep(parts)
        self._opened = tuple(map(self._files.open, parts))
        self.discard()

    def discard(self) -> None:
        """Discard all changes since the runs were made."""
        self.spine.batches, self.spine.fixed = self._opened, len(self._opened)
        self.slot.discard()

    def close(self) -> None:
        """Release the files."""
        self._opened = ()
        self.discard()

    def gathered(self) -> int:
        """Merge small batches that are not in files yet; return the number of rows not in files."""
        self.spine.gather()
        return sum(map(len, self.spine.batches[len(self._opened) :]))

    def write(self, name: str) -> tuple[tuple[Run, ...], list[Path]]:
        """Write new rows to files with names that begin with `name`; return the next runs and the files."""
        self.slot.settle()
        runs, left = self._kept_runs()
        new = [batch for batch in (*left, *self.spine.batches[len(self._opened) :]) if len(batch)]
        if not new:
            return runs, []
        step = MergeStep(self._files, name, list(runs))
        # `add` merges with what is there, and nets the rows of one batch, too.
        step.add(new[0] if len(new) == 1 else merged(self._layout, new))
        return tuple(step.runs), step.kept()

    def _kept_runs(self) -> tuple[tuple[Run, ...], list[SortedBatch]]:
        """Return the runs with unchanged batches, and the remaining batches of the other runs."""
        runs: list[Run] = []
        left: list[SortedBatch] = []
        at = 0
        for run in self._runs:
            end = at + len(parts_of([run]))
            now, was = self.spine.batches[at:end], self._opened[at:end]
            if all(one is other for one, other in zip(now, was, strict=True)):
                runs.append(run)
            else:
                left += now
            at = end
        return tuple(runs), left


def pieces_of(folder: Path, layout: Layout, runs: Iterable[Run]) -> Iterator[SortedBatch]:
    """Yield all rows of an arrangement's files in code order, keeping rows of one code together.

    Raises `CheckpointDamaged` for a file that is missing, cut off or altered.
    """
    files = MappedFiles(folder, layout)
    for parts in ranges(map(files.open, parts_of(runs)), _MAX_ROWS):
        # A batch that was never merged may have rows that take back others of it.
        found = merged(layout, parts, whole=True)
        if len(found):
            yield found


MERGED = 4
"""Larger batches that are merged at once, at least."""
WORK = 12
"""Bytes that merges move for each byte that is added."""
AT_ONCE = 8 << 20
"""Bytes that merges move at least per tick, and up to which a tick merges batches in memory."""
MAX_AT_ONCE = 64 << 20
"""Bytes of a part, and of what is merged in memory."""
_MAX_PARTS = 256
"""Parts that the smallest steps divide the state into, about."""
_SMALL = 4 << 10
"""Bytes of a file that costs as much as a smaller one."""


_FIRST, _LAST = -(2**63) - 1, 2**63 - 1
"""A code before all, and the largest code there is."""


class MergeStep:
    """Changes of one tick to an arrangement's runs. name: prefix of its file names."""

    def __init__(self, files: MappedFiles, name: str, runs: list[Run]) -> None:
        self.files = files
        self._name = name
        self.runs = runs
        self._written: list[str] = []

    def kept(self) -> list[Path]:
        """Return the written files that the runs reference, and delete the others."""
        names = {file.name for run in self.runs for file in run.files()}
        for name in self._written:
            if name not in names:
                (self.files.folder / name).unlink()
        return [self.files.folder / name for name in self._written if name in names]

    def add(self, new: SortedBatch) -> None:
        """Add a batch, and do its share of merging."""
        runs, rows, size = self.runs, len(new), _bytes(new)
        added, before = size, list[SortedBatch]()
        while runs and (last := runs[-1]) and isinstance(last, StoredBatch):
            size += last.size
            if size > AT_ONCE or (last.rows >= RATIO * rows and last.size > _SMALL):
                break
            rows += last.rows
            before[:0] = map(self.files.open, last.parts)
            runs.pop()
        new = merged(self.files.layout, [*before, new], whole=not runs)
        if len(new):
            runs.append(StoredBatch(tuple(map(self._write, self._divided(new)))))
        self._work(WORK * added)

    def _work(self, budget: int) -> None:
        """Merge about `budget` bytes, the merges with the fewest bytes left first."""
        size = sum(run.size for run in self.runs)
        budget = max(budget, AT_ONCE, size // _MAX_PARTS)
        while budget > 0:
            self._begin_merges()
            merges = [at for at, run in enumerate(self.runs) if isinstance(run, UnfinishedMerge)]
            if not merges:
                return
            at = min(merges, key=lambda at: self._bytes_left(self.runs[at]))
            budget -= self._advance(at, min(budget, MAX_AT_ONCE))

    def _begin_merges(self) -> None:
        """Start merging the last batches if they are many and the first is no larger than the rest."""
        last: list[StoredBatch] = []
        for run in reversed(self.runs):
            if not isinstance(run, StoredBatch):
                break
            last.insert(0, run)
        for start in range(len(last) - MERGED + 1):
            own = last[start:]
            if 2 * own[0].rows <= sum(batch.rows for batch in own):
                self.runs[len(self.runs) - len(own) :] = [UnfinishedMerge(tuple(own), _FIRST)]
                return

    def _advance(self, at: int, budget: int) -> int:
        """Merge about `budget` more bytes, and return the number merged."""
        merge = self.runs[at]
        assert isinstance(merge, UnfinishedMerge)
        upto = self._end(merge, budget)
        pieces = [piece for batch in merge.batches for piece in self._pieces(batch, merge.upto, upto)]
        done = merge.done
        if pieces and len(made := merged(self.files.layout, pieces, whole=at == 0)):
            done = StoredBatch((*done.parts, self._write(made)))
        if upto >= _LAST:
            self.runs[at : at + 1] = [done] if done.parts else []
        else:
            self.runs[at] = replace(merge, upto=upto, done=done)
        return max(1, sum(map(_bytes, pieces)))

    def _pieces(self, batch: StoredBatch, after: int, upto: int) -> Iterator[SortedBatch]:
        start = _FIRST
        for part in batch.parts:
            if part.upto > after and start < upto:
                rows = self.files.open(part)
                yield rows.slice(_place(rows, after), _place(rows, upto))
            start = part.upto

    def _end(self, merge: UnfinishedMerge, budget: int) -> int:
        """Return the code up to which a merge gets by moving about `budget` more bytes."""
        larger = max(merge.batches, key=lambda batch: batch.rows)
        rows = 1 + budget * larger.rows // max(1, merge.size)
        for part in larger.parts:
            if part.upto > merge.upto:
                held = self.files.open(part)
                at = _place(held, merge.upto) + rows - 1
                # At the end of the last part all is merged, also what the other has beyond it.
                if at < len(held):
                    return int(held.codes[at])
                return _LAST if part is larger.parts[-1] else part.upto
        return _LAST

    def _divided(self, rows: SortedBatch) -> Iterator[SortedBatch]:
        """Divide rows into pieces of bounded size; rows of one code stay together."""
        count = -(-_bytes(rows) // MAX_AT_ONCE)
        if count == 1:
            yield rows
            return
        start = 0
        for at in range(1, count + 1):
            stop = _place(rows, int(rows.codes[max(0, len(rows) * at // count - 1)]))
            if stop > start:
                yield bounded(self.files.layout, rows.codes[start:stop], rows.frame[start:stop])
            start = stop

    def _write(self, rows: SortedBatch) -> Part:
        name = f"{self._name}.{len(self._written)}" if self._written else self._name
        self._written.append(name)
        return self.files.write(name, rows)

    @staticmethod
    def _bytes_left(run: Run) -> int:
        """Return the approximate number of bytes left to merge."""
        assert isinstance(run, UnfinishedMerge)
        return run.size - run.done.size


def _bytes(rows: SortedBatch) -> int:
    """Return the approximate number of bytes of rows in a file."""
    # Of texts, Polars counts the characters, not the words that point to them.
    texts = sum(type in (pl.String, pl.Binary) for type in rows.frame.dtypes)
    return int(rows.frame.estimated_size()) + rows.codes.nbytes + 16 * texts * len(rows)


def _place(rows: SortedBatch, code: int) -> int:
    """Return the position after all rows with codes up to `code`."""
    if code >= _LAST:
        return len(rows)
    return 0 if code < -(2**63) else int(np.searchsorted(rows.codes, code, "right"))


Entry: TypeAlias = tuple[str, bytes, bytes]
"""Slot, encoded key, encoded value."""

ENTRY_LAYOUT = Layout({"key": pl.Binary(), "value": pl.Binary()}, ("key",), (), nullable=False, latest=True)
_NUMBER = Struct(">H")


def code_of(key: bytes) -> int:
    """Return the code of a row's key. The layout's function would take as long as the rest of a search."""
    return xxh3_64_intdigest(key) >> 1


class EntryStore:
    """Slots backed by the entries of a shard. numbers: encoded numbers of the slots that may have entries."""

    def __init__(self, spine: Spine) -> None:
        self.spine = spine
        self.slots: dict[str, StateSlot] = {}
        self.numbers: dict[str, bytes] = {}
        self._readers = RowReaders(spine, tuple(ENTRY_LAYOUT.types))

    def number(self, slots: Iterable[str]) -> None:
        """Adopt the slot numbers of a chain."""
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

    def batch(self, changes: Iterable[tuple[str, Sequence[bytes], Sequence[bytes | None]]]) -> SortedBatch:
        """Return changed entries, per slot keys and values, as rows; None for a removed key."""
        keys: list[bytes] = []
        values: list[bytes | None] = []
        for slot, own, new in changes:
            number = self.numbers.setdefault(slot, _NUMBER.pack(len(self.numbers)))
            keys += [number + key for key in own]
            values += new
        columns = [pl.Series("key", keys, pl.Binary), pl.Series("value", values, pl.Binary)]
        codes = np.fromiter(map(code_of, keys), np.int64, len(keys))
        return batch_of(ENTRY_LAYOUT, pl.DataFrame(columns), codes=codes)

    def settle(self) -> None:
        """Write all changes of the slots into the arrangement."""
        changes = [(name, *slot.changes()) for name, slot in sorted(self.slots.items())]
        changes = [change for change in changes if change[1]]
        if changes:
            self.spine.add_batch(self.batch(changes))

    def discard(self) -> None:
        """Discard values that are not in the arrangement."""
        # Readers of batches that are gone would keep their files.
        self._readers.current()
        for slot in self.slots.values():
            slot.discard()


ENTRY_FORM = ArrangedForm(ENTRY_LAYOUT, EntryStore)


def stored_entries(
    folder: Path, chain: BatchChain, wanted: Callable[[str], bool] = lambda slot: True
) -> Iterator[Entry]:
    """Read all entries of the wanted slots, in the order of slots and keys. Raises `CheckpointDamaged`."""
    numbers = sorted((slot, _NUMBER.pack(at)) for at, slot in enumerate(chain.slots) if wanted(slot))
    if not numbers:
        return
    of_one = [pl.col("key").bin.starts_with(number) for _, number in numbers]
    pieces = pieces_of(folder, ENTRY_LAYOUT, chain.arranged.get(ENTRIES, ()))
    found = [piece.frame.filter(pl.any_horizontal(of_one)) for piece in pieces]
    rows = concat_frames([*found, pl.DataFrame(schema=ENTRY_LAYOUT.types)])
    for (slot, _), condition in zip(numbers, of_one, strict=True):
        own = rows.filter(condition).sort("key")
        yield from ((slot, key[_NUMBER.size :], value) for key, value in own.iter_rows())
