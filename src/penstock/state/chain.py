"""Chain of a shard: the files that make up its state, where later entries override earlier ones.

Every tick that changes the shard adds a small file. Several files of one order of magnitude are merged into
one of the next. When everything after the first file is as large as the first, all files are merged, and the
first one holds the whole state again: it is the snapshot, and contains no removed keys. So a chain of n ticks
has O(log n) files, and an entry is rewritten O(log n) times. The changes of the last tick are also kept
separately, for working copies that are one tick behind.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.state.sorted_files import Entry, FileRef, read_entries

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# Working copies that are at most so many changes behind catch up; older ones are rebuilt.
_REMEMBERED_VERSIONS = 32
# So many files of one order of size are merged into one; the order is that of a base of the same number.
_FILES_OF_ONE_SIZE = 8
_SMALL_FILE = 4 * 1024


@dataclass(frozen=True, slots=True)
class Link:
    """A file, and the last tick whose changes it includes."""

    file: FileRef
    upto: int


@dataclass(frozen=True, slots=True)
class Version:
    """A committed state of a shard, identified by its tick and attempt."""

    tick: int
    attempt: str

    def __str__(self) -> str:
        return f"{self.tick}-{self.attempt}"


@dataclass(frozen=True, slots=True)
class Chain:
    """Files of a shard, oldest first, and its latest versions, newest last.

    links:    empty for a shard that never changed. The first is the snapshot.
    versions: committed versions that a working copy may be at; the last is the current one.
    news:     what the last version changed; it may be the last link too. None before the first.
    """

    links: tuple[Link, ...] = ()
    versions: tuple[Version, ...] = ()
    news: FileRef | None = None

    @property
    def version(self) -> Version | None:
        return self.versions[-1] if self.versions else None

    def files(self) -> Iterator[FileRef]:
        yield from (link.file for link in self.links)
        if self.news is not None:
            yield self.news

    def swallowed(self, size: int) -> int:
        """Return the number of trailing files to merge with a new one of `size` bytes."""
        sizes = [link.file.size for link in self.links]
        if len(sizes) >= _FILES_OF_ONE_SIZE and sum(sizes[1:]) + size >= sizes[0]:
            return len(sizes)
        count = 0
        while True:
            run = 0
            while count + run < len(sizes) and _order(sizes[-1 - count - run]) <= _order(size):
                run += 1
            if run < _FILES_OF_ONE_SIZE - 1:
                return count
            size += sum(sizes[len(sizes) - count - run : len(sizes) - count])
            count += run

    def after(self, version: Version, news: FileRef, merged: FileRef, swallowed: int) -> Chain:
        """Append a version whose `merged` file replaces the last `swallowed` files."""
        kept = self.links[: len(self.links) - swallowed]
        versions = (*self.versions, version)[-_REMEMBERED_VERSIONS:]
        return Chain((*kept, Link(merged, version.tick)), versions, news)

    def behind(self, version: Version | None) -> tuple[FileRef, ...] | None:
        """Return the files that bring a working copy at `version` up to date; None if it must be rebuilt.

        A merged file may begin before that version. Applying all of it is still correct, because it holds the
        last value of every key it mentions. This does not hold for the snapshot, which does not mention
        removed keys.
        """
        if version is None or version not in self.versions:
            return None
        if self.news is not None and self.versions[-2:-1] == (version,):
            return (self.news,)
        needed = tuple(link.file for link in self.links if link.upto > version.tick)
        return None if len(needed) == len(self.links) else needed

    def to_json(self) -> dict[str, Any]:
        return {
            "links": [[*link.file.to_json(), link.upto] for link in self.links],
            "versions": [[v.tick, v.attempt] for v in self.versions],
            "news": None if self.news is None else self.news.to_json(),
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Chain:
        links = tuple(Link(FileRef.from_json(item[:3]), int(item[3])) for item in data["links"])
        versions = tuple(Version(int(t), str(a)) for t, a in data["versions"])
        return cls(links, versions, FileRef.from_json(data["news"]) if data["news"] else None)


def _order(size: int) -> int:
    order = 0
    while size > _SMALL_FILE:
        size //= _FILES_OF_ONE_SIZE
        order += 1
    return order


def entries_of(folder: Path, chain: Chain) -> Iterator[tuple[str, bytes, bytes]]:
    """Read the current entries of a shard from its files below `folder`. Raises `CheckpointDamaged`."""
    for slot, key, value in merge([read_entries(folder, link.file) for link in chain.links], whole=True):
        assert value is not None, "what was removed is left out"
        yield slot, key, value


def merge(layers: Sequence[Iterable[Entry]], *, whole: bool) -> Iterator[Entry]:
    """Merge sorted layers of entries, oldest first; the newest value of a key wins.

    whole: nothing lies below, so removed keys are left out.
    """
    # No two entries agree in slot, key and rank, so values are never compared.
    ranked = [_ranked(layer, -at) for at, layer in enumerate(layers)]
    last: tuple[str, bytes] | None = None
    for slot, key, _, value in heapq.merge(*ranked):
        if (slot, key) != last:
            last = (slot, key)
            if value is not None or not whole:
                yield slot, key, value


def _ranked(layer: Iterable[Entry], rank: int) -> Iterator[tuple[str, bytes, int, bytes | None]]:
    return ((slot, key, rank, value) for slot, key, value in layer)
