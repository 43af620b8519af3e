"""Chain of a shard: the batches in files that make up its arrangements, oldest first.

Every tick that changes an arrangement adds a batch, and merges it with small ones before it. Larger ones are
merged once they are several of which the first is no larger than the others together. So n rows lie in
O(log n) batches, and a row is rewritten O(log n) times. A merge of large batches takes several ticks; until
it ends, its batches are read as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain as concatenated
from typing import Any, TypeAlias

from headrace.state.checkpoint_files import FileRef


@dataclass(frozen=True, slots=True)
class Part:
    """A file of rows sorted by code.

    upto:   no code of them is larger.
    bounds: per sum what the absolute values add up to, about.
    """

    file: FileRef
    rows: int
    upto: int
    bounds: tuple[float, ...] = ()

    def to_json(self) -> list[Any]:
        return [*self.file.to_json(), self.rows, self.upto, *self.bounds]

    @classmethod
    def from_json(cls, data: list[Any]) -> Part:
        return cls(FileRef.from_json(data), int(data[3]), int(data[4]), tuple(map(float, data[5:])))


@dataclass(frozen=True, slots=True)
class Batch:
    """Sorted rows in files of ascending codes. Rows of one code are in one file."""

    parts: tuple[Part, ...]

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def size(self) -> int:
        """Bytes of the files."""
        return sum(part.file.size for part in self.parts)

    def files(self) -> Iterator[FileRef]:
        return (part.file for part in self.parts)


@dataclass(frozen=True, slots=True)
class Merge:
    """A merge on its way. upto: rows of the batches with codes up to it are in `done`."""

    batches: tuple[Batch, ...]
    upto: int
    done: Batch = Batch(())

    @property
    def size(self) -> int:
        """Bytes of the files that are merged."""
        return sum(batch.size for batch in self.batches)

    def files(self) -> Iterator[FileRef]:
        for batch in (*self.batches, self.done):
            yield from batch.files()


Run: TypeAlias = Batch | Merge


def parts_of(runs: Iterable[Run]) -> list[Part]:
    """Return the files of rows that are read, oldest first."""
    batches = ((run,) if isinstance(run, Batch) else run.batches for run in runs)
    return [part for batch in concatenated.from_iterable(batches) for part in batch.parts]


ENTRIES = ""
"""Name of the arrangement of entries (`entry_store`), beside the names of slots."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Arrangements of a shard, by name: each its runs, oldest first.

    slots: names of the slots that entries know by number.
    """

    arranged: Mapping[str, tuple[Run, ...]] = field(default_factory=dict["str", tuple["Run", ...]])
    slots: tuple[str, ...] = ()

    def files(self) -> Iterator[FileRef]:
        for run in concatenated(*self.arranged.values()):
            yield from run.files()

    def to_json(self) -> dict[str, Any]:
        arranged = {name: list(map(_run_to_json, runs)) for name, runs in self.arranged.items()}
        return {"arranged": arranged, "slots": [*self.slots]}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Chain:
        arranged = {str(name): tuple(map(_run_from_json, runs)) for name, runs in data["arranged"].items()}
        return cls(arranged, tuple(map(str, data["slots"])))


def _run_to_json(run: Run) -> list[Any]:
    if isinstance(run, Batch):
        return [_to_json(run)]
    return [*map(_to_json, run.batches), _to_json(run.done), run.upto]


def _run_from_json(data: list[Any]) -> Run:
    if len(data) == 1:
        return _from_json(data[0])
    *batches, done, upto = data
    return Merge(tuple(map(_from_json, batches)), int(upto), _from_json(done))


def _to_json(batch: Batch) -> list[Any]:
    return [part.to_json() for part in batch.parts]


def _from_json(data: list[Any]) -> Batch:
    return Batch(tuple(map(Part.from_json, data)))
