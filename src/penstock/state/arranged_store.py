"""Arrangements of a shard's slots, over the batches of its chain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
import polars as pl

from penstock.arrangement.batch import Batch as Rows
from penstock.arrangement.batch import Layout, batch_of, bounded, merged
from penstock.arrangement.files import batch_in, content_of
from penstock.arrangement.spine import Spine
from penstock.state.chain import Batch, Merge, Part, Run
from penstock.state.mapped_files import MappedFiles, files_of_shard
from penstock.state.merging import RATIO, Merging, Step

if TYPE_CHECKING:
    import pyarrow as pa

_LAST = 2**63 - 1


class ArrangedMapping(Protocol):
    """Slot over an arrangement, some of whose entries may not be written into it yet."""

    def settle(self) -> None:
        """Write all entries into the arrangement."""
        ...

    def discard(self) -> None:
        """Forget entries that are not in the arrangement."""
        ...


@dataclass(frozen=True, slots=True)
class ArrangedForm:
    """Form of a slot that is kept in an arrangement.

    slot:     makes the slot over it.
    describe: returns the description of its columns (`described_rows`).
    """

    layout: Layout
    slot: Callable[[Spine], ArrangedMapping]
    describe: Callable[[], str] = str


class ArrangedStore:
    """Arrangement of one slot as of some runs of a chain.

    name: of the store, among those of all folders.

    Raises `CheckpointDamaged` for a file that is missing, cut off or altered.
    """

    def __init__(self, folder: Path, name: str, form: ArrangedForm, runs: Sequence[Run]) -> None:
        layout = form.layout
        self._folder = folder
        self._files: MappedFiles[Rows] = files_of_shard(folder, name, _reader(layout))
        self._layout = layout
        self.spine = Spine(layout, merges=False)
        self.slot = form.slot(self.spine)
        self.advance(runs)

    def advance(self, runs: Sequence[Run]) -> None:
        """Continue at other runs."""
        self._runs = tuple(runs)
        parts = [part for run in runs for batch in _read(run) for part in batch.parts]
        self._files.keep(parts)
        self._opened = tuple(map(self._files.open, parts))
        self.discard()

    def discard(self) -> None:
        """Forget what came since the runs were made."""
        self.slot.discard()
        self.spine.batches = self._opened

    def gathered(self) -> int:
        """Merge small batches that are in no file, and return how many rows there are in such ones."""
        held, new = self.spine.batches[: len(self._opened)], list(self.spine.batches[len(self._opened) :])
        start, rows = len(new), 0
        while start and (not rows or len(new[start - 1]) < RATIO * rows):
            start -= 1
            rows += len(new[start])
        if new[start:]:
            new[start:] = [merged(self._layout, new[start:])]
        self.spine.batches = (*held, *new)
        return sum(map(len, new))

    def write(self, name: str) -> tuple[tuple[Run, ...], list[Path]]:
        """Write what came to files named `name` and something; return the next runs and the files."""
        self.slot.settle()
        runs, left = self._kept_runs()
        new = [batch for batch in (*left, *self.spine.batches[len(self._opened) :]) if len(batch)]
        if not new:
            return runs, []
        step = Step(BatchMerging(self._layout, self._files), name, list(runs))
        step.add(merged(self._layout, new))
        return tuple(step.runs), step.kept(self._folder)

    def _kept_runs(self) -> tuple[tuple[Run, ...], list[Rows]]:
        """Return the runs whose batches are as they were, and what is left of those of others."""
        runs: list[Run] = []
        left: list[Rows] = []
        at = 0
        for run in self._runs:
            end = at + sum(len(batch.parts) for batch in _read(run))
            now, was = self.spine.batches[at:end], self._opened[at:end]
            if all(one is other for one, other in zip(now, was, strict=True)):
                runs.append(run)
            else:
                left += now
            at = end
        return tuple(runs), left


def _reader(layout: Layout) -> Callable[[pa.Buffer, Part], Rows]:
    return lambda content, part: batch_in(layout, content, part.bounds)


def _read(run: Run) -> Iterable[Batch]:
    return (run,) if isinstance(run, Batch) else (run.first, run.second)


class ArrangedFiles:
    """All rows of a slot that is an arrangement, in files that some runs name.

    Raises `CheckpointDamaged` for a file that is missing, cut off or altered.
    """

    def __init__(self, folder: Path, layout: Layout, runs: Iterable[Run]) -> None:
        self._merging = BatchMerging(layout, MappedFiles(folder, _reader(layout)))
        self._batches = [batch for run in runs for batch in _read(run)]

    def pieces(self) -> Iterator[Rows]:
        """Yield the rows in the order of codes, those of one code together, and at most a file per batch."""
        after = self._merging.first
        while True:
            parts = [next((part for part in of.parts if part.upto > after), None) for of in self._batches]
            upto = min((part.upto for part in parts if part is not None), default=None)
            if upto is None:
                return
            pieces = [
                self._merging.between(self._merging.open(part), after, upto)
                for part in parts
                if part is not None
            ]
            found = self._merging.merged(pieces, whole=True)
            if len(found):
                yield bounded(self._merging.layout, found.codes, found.frame)
            after = upto


class ArrangedWriter:
    """Writer of the files of an arrangement, given rows in any order. name: of its files, and something."""

    def __init__(self, folder: Path, name: str, layout: Layout) -> None:
        self._folder = folder
        files = MappedFiles(folder, _reader(layout))
        self._step = Step(BatchMerging(layout, files), name, [])

    def add(self, rows: Rows) -> None:
        """Add sorted rows."""
        if len(rows):
            self._step.add(rows)

    def finish(self) -> tuple[Run, ...]:
        """Return the runs. Call `make_durable` before a commit names their files."""
        self._step.kept(self._folder)
        return tuple(self._step.runs)


@dataclass(frozen=True, slots=True)
class BatchMerging(Merging[Rows]):
    """Merging of an arrangement's batches."""

    layout: Layout
    files: MappedFiles[Rows]
    first: int = -(2**63) - 1
    last: int = _LAST

    def open(self, part: Part) -> Rows:
        return self.files.open(part)

    def write(self, name: str, rows: Rows) -> Part:
        content = content_of(self.layout, rows)
        return self.files.write(name, content, len(rows), int(rows.codes[-1]), rows.bounds)

    def size(self, rows: Rows) -> int:
        return int(rows.frame.estimated_size()) + rows.codes.nbytes

    def merged(self, pieces: Sequence[Rows], *, whole: bool) -> Rows:
        if not pieces:
            return batch_of(self.layout, pl.DataFrame(schema=self.layout.types))
        return merged(self.layout, pieces)

    def between(self, rows: Rows, after: int, upto: int) -> Rows:
        return rows.slice(_end(rows, after), _end(rows, upto))

    def divided(self, rows: Rows, most: int) -> Iterable[Rows]:
        count = -(-self.size(rows) // most)
        start = 0
        for at in range(1, count + 1):
            code = int(rows.codes[max(0, len(rows) * at // count - 1)])
            stop = _end(rows, code)
            if stop > start:
                yield merged(self.layout, (rows.slice(start, stop), rows.slice(0, 0))) if count > 1 else rows
            start = stop

    def end(self, merge: Merge, budget: int) -> int:
        larger = max(merge.first, merge.second, key=lambda batch: batch.rows)
        rows = 1 + budget * larger.rows // max(1, merge.first.size + merge.second.size)
        for part in larger.parts:
            if part.upto > merge.upto:
                held = self.open(part)
                at = _end(held, merge.upto) + rows - 1
                # At the end of the last part all is merged, also what the other has beyond it.
                if at < len(held):
                    return int(held.codes[at])
                return self.last if part is larger.parts[-1] else part.upto
        return self.last


def _end(rows: Rows, code: int) -> int:
    """Return the place behind all rows with codes up to one."""
    if code >= _LAST:
        return len(rows)
    return 0 if code < -(2**63) else int(np.searchsorted(rows.codes, code, "right"))
