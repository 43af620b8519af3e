"""Merging of batches in files: a bit per tick, in proportion to what the tick adds.

Small batches before a new one are merged into it in memory. Several larger ones are merged at once, so that a
row is moved once for about each time that their number doubles twice. Such merges advance with each tick, and
end in a later one; until then the batches are read as before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from headrace.arrangement.batch import Batch as Rows
from headrace.arrangement.batch import bounded, merged
from headrace.arrangement.spine import RATIO
from headrace.state.chain import Batch, Merge, Part, Run
from headrace.state.mapped_files import MappedFiles

MERGED = 4
"""Larger batches that are merged at once, at least."""
WORK = 12
"""Bytes that merges move for each byte that is added."""
AT_ONCE = 8 << 20
"""Bytes that merges move at least per tick, and up to which a tick merges batches in memory."""
MOST_AT_ONCE = 64 << 20
"""Bytes of a part, and of what is merged in memory."""
_MOST_PARTS = 256
"""Parts that the smallest steps divide the state into, about."""
_SMALL = 4 << 10
"""Bytes of a file that costs as much as a smaller one."""


_FIRST, _LAST = -(2**63) - 1, 2**63 - 1
"""A code before all, and the largest code there is."""


class Step:
    """Change of an arrangement's runs by one tick. name: prefix of the names of its files."""

    def __init__(self, files: MappedFiles, name: str, runs: list[Run]) -> None:
        self.files = files
        self._name = name
        self.runs = runs
        self._written: list[str] = []

    def kept(self) -> list[Path]:
        """Return the files written that the runs name, and remove the others."""
        names = {file.name for run in self.runs for file in run.files()}
        for name in self._written:
            if name not in names:
                (self.files.folder / name).unlink()
        return [self.files.folder / name for name in self._written if name in names]

    def add(self, new: Rows) -> None:
        """Add a batch, and do its share of merging."""
        runs, rows, size = self.runs, len(new), _bytes(new)
        added, before = size, list[Rows]()
        while runs and (last := runs[-1]) and isinstance(last, Batch):
            size += last.size
            if size > AT_ONCE or (last.rows >= RATIO * rows and last.size > _SMALL):
                break
            rows += last.rows
            before[:0] = map(self.files.open, last.parts)
            runs.pop()
        new = merged(self.files.layout, [*before, new], whole=not runs)
        if len(new):
            runs.append(Batch(tuple(map(self._write, self._divided(new)))))
        self._work(WORK * added)

    def _work(self, budget: int) -> None:
        """Merge about so many bytes, those of small batches first."""
        size = sum(run.size for run in self.runs)
        budget = max(budget, AT_ONCE, size // _MOST_PARTS)
        while budget > 0:
            self._begin_merges()
            merges = [at for at, run in enumerate(self.runs) if isinstance(run, Merge)]
            if not merges:
                return
            at = min(merges, key=lambda at: self._left(self.runs[at]))
            budget -= self._advance(at, min(budget, MOST_AT_ONCE))

    def _begin_merges(self) -> None:
        """Begin a merge of the last batches, if they are many and the first is no larger than the others."""
        last: list[Batch] = []
        for run in reversed(self.runs):
            if not isinstance(run, Batch):
                break
            last.insert(0, run)
        for start in range(len(last) - MERGED + 1):
            own = last[start:]
            if 2 * own[0].rows <= sum(batch.rows for batch in own):
                self.runs[len(self.runs) - len(own) :] = [Merge(tuple(own), _FIRST)]
                return

    def _advance(self, at: int, budget: int) -> int:
        """Merge about so many more bytes, and return how many."""
        merge = self.runs[at]
        assert isinstance(merge, Merge)
        upto = self._end(merge, budget)
        pieces = [piece for batch in merge.batches for piece in self._pieces(batch, merge.upto, upto)]
        done = merge.done
        if pieces and len(made := merged(self.files.layout, pieces, whole=at == 0)):
            done = Batch((*done.parts, self._write(made)))
        if upto >= _LAST:
            self.runs[at : at + 1] = [done] if done.parts else []
        else:
            self.runs[at] = replace(merge, upto=upto, done=done)
        return max(1, sum(map(_bytes, pieces)))

    def _pieces(self, batch: Batch, after: int, upto: int) -> Iterator[Rows]:
        start = _FIRST
        for part in batch.parts:
            if part.upto > after and start < upto:
                rows = self.files.open(part)
                yield rows.slice(_place(rows, after), _place(rows, upto))
            start = part.upto

    def _end(self, merge: Merge, budget: int) -> int:
        """Return the code up to which a merge comes if it moves about so many more bytes."""
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

    def _divided(self, rows: Rows) -> Iterator[Rows]:
        """Divide rows into pieces of bounded size; those of one code stay together."""
        count = -(-_bytes(rows) // MOST_AT_ONCE)
        if count == 1:
            yield rows
            return
        start = 0
        for at in range(1, count + 1):
            stop = _place(rows, int(rows.codes[max(0, len(rows) * at // count - 1)]))
            if stop > start:
                yield bounded(self.files.layout, rows.codes[start:stop], rows.frame[start:stop])
            start = stop

    def _write(self, rows: Rows) -> Part:
        name = f"{self._name}.{len(self._written)}" if self._written else self._name
        self._written.append(name)
        return self.files.write(name, rows)

    @staticmethod
    def _left(run: Run) -> int:
        """Return about how many bytes of a merge are left."""
        assert isinstance(run, Merge)
        return run.size - run.done.size


def _bytes(rows: Rows) -> int:
    """Return about how many bytes rows take in a file."""
    # Of texts, Polars counts the characters, not the words that point to them.
    texts = sum(type in (pl.String, pl.Binary) for type in rows.frame.dtypes)
    return int(rows.frame.estimated_size()) + rows.codes.nbytes + 16 * texts * len(rows)


def _place(rows: Rows, code: int) -> int:
    """Return the place behind all rows with codes up to one."""
    if code >= _LAST:
        return len(rows)
    return 0 if code < -(2**63) else int(np.searchsorted(rows.codes, code, "right"))
