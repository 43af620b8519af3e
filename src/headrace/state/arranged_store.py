"""Arrangements of a shard's slots, over the batches of its chain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from headrace.arrangement.batch import Batch as Rows
from headrace.arrangement.batch import Layout, merged
from headrace.arrangement.reading import ranges
from headrace.arrangement.spine import Spine
from headrace.state.chain import Run, parts_of
from headrace.state.mapped_files import MappedFiles, kept_files
from headrace.state.merging import Step

_MOST_ROWS = 1 << 20
"""Rows that are read at once, about."""


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
        self._files = kept_files(folder, name, form.layout)
        self._layout = form.layout
        self.spine = Spine(form.layout, merges=False)
        self.slot = form.slot(self.spine)
        self.advance(runs)

    def advance(self, runs: Sequence[Run]) -> None:
        """Continue at other runs."""
        self._runs = tuple(runs)
        parts = parts_of(runs)
        self._files.keep(parts)
        self._opened = tuple(map(self._files.open, parts))
        self.discard()

    def discard(self) -> None:
        """Forget what came since the runs were made."""
        self.spine.batches, self.spine.fixed = self._opened, len(self._opened)
        self.slot.discard()

    def close(self) -> None:
        """Release the files."""
        self._opened = ()
        self.discard()

    def gathered(self) -> int:
        """Merge small batches that are in no file, and return how many rows there are in such ones."""
        self.spine.gather()
        return sum(map(len, self.spine.batches[len(self._opened) :]))

    def write(self, name: str) -> tuple[tuple[Run, ...], list[Path]]:
        """Write what came to files named `name` and something; return the next runs and the files."""
        self.slot.settle()
        runs, left = self._kept_runs()
        new = [batch for batch in (*left, *self.spine.batches[len(self._opened) :]) if len(batch)]
        if not new:
            return runs, []
        step = Step(self._files, name, list(runs))
        # `add` merges with what is there, and nets the rows of one batch, too.
        step.add(new[0] if len(new) == 1 else merged(self._layout, new))
        return tuple(step.runs), step.kept()

    def _kept_runs(self) -> tuple[tuple[Run, ...], list[Rows]]:
        """Return the runs whose batches are as they were, and what is left of those of others."""
        runs: list[Run] = []
        left: list[Rows] = []
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


def pieces_of(folder: Path, layout: Layout, runs: Iterable[Run]) -> Iterator[Rows]:
    """Yield all rows of an arrangement in files, in the order of codes, those of one code together.

    Raises `CheckpointDamaged` for a file that is missing, cut off or altered.
    """
    files = MappedFiles(folder, layout)
    for parts in ranges(map(files.open, parts_of(runs)), _MOST_ROWS):
        # A batch that was never merged may have rows that take back others of it.
        found = merged(layout, parts, whole=True)
        if len(found):
            yield found
