"""Merging of batches in files: a bit per tick, in proportion to what the tick adds.

Small batches before a new one are merged into it in memory. Merges of larger ones advance with each tick, and
end in a later one; until then both batches are read as before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from penstock.state.chain import Batch, Merge, Part, Run

RATIO = 4
"""Of the rows of neighbours, below which they are merged."""
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


class Sized(Protocol):
    """Rows in memory."""

    def __len__(self) -> int: ...


R = TypeVar("R", bound=Sized)


class Merging(ABC, Generic[R]):
    """Merging of rows of one kind, sorted by code.

    first: a code before all. last: the largest code there is.
    """

    first: int
    last: int

    @abstractmethod
    def open(self, part: Part) -> R:
        """Return the rows of a file."""

    @abstractmethod
    def write(self, name: str, rows: R) -> Part:
        """Write rows to a new file."""

    @abstractmethod
    def size(self, rows: R) -> int:
        """Return the bytes of rows."""

    @abstractmethod
    def merged(self, pieces: Sequence[R], *, whole: bool) -> R:
        """Merge rows, oldest first. whole: nothing lies below."""

    @abstractmethod
    def between(self, rows: R, after: int, upto: int) -> R:
        """Return the rows with after < code <= upto."""

    @abstractmethod
    def divided(self, rows: R, most: int) -> Iterable[R]:
        """Divide rows into pieces of about so many bytes; those of one code stay together."""

    @abstractmethod
    def end(self, merge: Merge, budget: int) -> int:
        """Return the code up to which a merge comes if it moves about so many more bytes."""


class Step(Generic[R]):
    """Change of a chain's runs by one tick. name: prefix of the names of its files."""

    def __init__(self, merging: Merging[R], name: str, runs: list[Run]) -> None:
        self._merging = merging
        self._name = name
        self.runs = runs
        self._written: list[str] = []

    def kept(self, folder: Path) -> list[Path]:
        """Return the files written that the runs name, and remove the others."""
        names = {file.name for run in self.runs for file in run.files()}
        for name in self._written:
            if name not in names:
                (folder / name).unlink()
        return [folder / name for name in self._written if name in names]

    def add(self, new: R) -> None:
        """Add a batch, and do its share of merging."""
        merging = self._merging
        runs, rows, size = self.runs, len(new), merging.size(new)
        added, before = size, list[R]()
        while runs and (last := runs[-1]) and isinstance(last, Batch):
            size += last.size
            if size > AT_ONCE or (last.rows >= RATIO * rows and last.size > _SMALL):
                break
            rows += last.rows
            before[:0] = map(merging.open, last.parts)
            runs.pop()
        new = merging.merged([*before, new], whole=not runs)
        if len(new):
            runs.append(Batch(tuple(map(self._write, merging.divided(new, MOST_AT_ONCE)))))
        self._work(WORK * added)

    def _work(self, budget: int) -> None:
        """Merge about so many bytes, those of small batches first."""
        size = sum(_size(run) for run in self.runs)
        budget = max(budget, AT_ONCE, size // _MOST_PARTS)
        while budget > 0:
            self._begin_merges()
            merges = [at for at, run in enumerate(self.runs) if isinstance(run, Merge)]
            if not merges:
                return
            at = min(merges, key=lambda at: self._left(self.runs[at]))
            budget -= self._advance(at, min(budget, MOST_AT_ONCE))

    def _begin_merges(self) -> None:
        at = len(self.runs) - 1
        while at > 0:
            match self.runs[at - 1 : at + 1]:
                case [Batch() as first, Batch() as second] if first.rows < RATIO * second.rows:
                    self.runs[at - 1 : at + 1] = [Merge(first, second, self._merging.first)]
                    at -= 2
                case _:
                    at -= 1

    def _advance(self, at: int, budget: int) -> int:
        """Merge about so many more bytes, and return how many."""
        merge = self.runs[at]
        assert isinstance(merge, Merge)
        merging = self._merging
        upto = merging.end(merge, budget)
        pieces = [
            piece for batch in (merge.first, merge.second) for piece in self._pieces(batch, merge.upto, upto)
        ]
        made = merging.merged(pieces, whole=at == 0)
        done = merge.done
        if len(made):
            done = Batch((*done.parts, self._write(made)))
        if upto >= merging.last:
            self.runs[at : at + 1] = [done] if done.parts else []
        else:
            self.runs[at] = replace(merge, upto=upto, done=done)
        return max(1, sum(map(merging.size, pieces)))

    def _pieces(self, batch: Batch, after: int, upto: int) -> Iterator[R]:
        start = self._merging.first
        for part in batch.parts:
            if part.upto > after and start < upto:
                yield self._merging.between(self._merging.open(part), after, upto)
            start = part.upto

    def _write(self, rows: R) -> Part:
        name = f"{self._name}.{len(self._written)}" if self._written else self._name
        self._written.append(name)
        return self._merging.write(name, rows)

    @staticmethod
    def _left(run: Run) -> int:
        """Return about how many bytes of a merge are left."""
        assert isinstance(run, Merge)
        return _size(run) - run.done.size


def _size(run: Run) -> int:
    return run.size if isinstance(run, Batch) else run.first.size + run.second.size
