"""Versions of a table as numbered folders of immutable files, each published by one rename.

    <path>/7/part-*.parquet              a version; names may have a prefix: `tick=7`
    <path>/.8.tmp/...                    the next version while it is written; readers do not look there
    current -> <path>/7                  a link to the version that readers see, where they need one

A version that is there is whole and stays as it is. The next one is written beside it and shares by hard
link (by copy on a file system without links) the files that stay the same. Whoever commits says which
versions are needed; the others are removed.

The sink `TableFiles`, the changelog, and the tables, catalogues and states of a pipeline are kept this way.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path

from headrace.file_system import publish_folder, remove_folder, stage_beside, sync_folder, take_over

STAGING = "_staging"
"""Folder for unpublished files. The underscore hides it from Spark and pyarrow."""

TICK = "tick"
"""Name of the column that readers make of the names of tick folders."""

WEIGHT = "weight"
"""Name of the column with the weight of a row, in table sources and changelogs."""


@dataclass(frozen=True, slots=True)
class VersionFolders:
    """Versions in the folder `path`. prefix: part of their folder names before the number."""

    path: Path
    prefix: str = ""

    def name(self, number: int) -> str:
        # No leading zeros: DuckDB would infer text.
        return f"{self.prefix}{number}"

    def folder(self, number: int) -> Path:
        return self.path / self.name(number)

    def _number_of(self, name: str) -> int | None:
        number = name.removeprefix(self.prefix)
        return int(number) if name.startswith(self.prefix) and number.isdecimal() else None

    def numbers(self) -> list[int]:
        """List the existing versions, ascending."""
        names = os.listdir(self.path) if self.path.is_dir() else []
        return sorted(number for name in names if (number := self._number_of(name)) is not None)

    def latest(self, before: int | None = None) -> int | None:
        """Return the newest version, or the newest one before a number; None if there is none."""
        return max((number for number in self.numbers() if before is None or number < before), default=None)

    def stage(self, number: int) -> Path:
        """Return the path to write a version to. Nothing exists there, even after an earlier attempt."""
        return stage_beside(self.folder(number))

    def publish(self, number: int, staged: Path, *, durable: bool = True) -> None:
        """Rename a finished folder to a version's folder, replacing leftovers of a failed attempt."""
        publish_folder(staged, self.folder(number), durable=durable)

    def discard_staged(self) -> None:
        """Remove unpublished leftovers of attempts to write versions."""
        for each in self.path.glob(f".{self.prefix}*.tmp"):
            remove_folder(each)

    def remove(self, number: int) -> None:
        """Remove a version if it exists."""
        remove_folder(self.folder(number))

    def retain(self, needed: Collection[int]) -> None:
        """Remove all versions but the needed ones."""
        for number in self.numbers():
            if number not in needed:
                self.remove(number)

    def linked(self, link: Path) -> int | None:
        """Return the version that a link points to; None if there is no link, or it points elsewhere."""
        if not link.is_symlink():
            return None
        target = Path(os.path.normpath(link.parent / os.readlink(link)))
        return self._number_of(target.name) if target.parent == Path(os.path.normpath(self.path)) else None

    def point(self, link: Path, number: int, *, durable: bool = True) -> None:
        """Make a link point to a version, by a single rename."""
        aside = link.with_name(f".{link.name}.tmp")
        aside.unlink(missing_ok=True)
        aside.symlink_to(os.path.relpath(self.folder(number), link.parent), target_is_directory=True)
        os.replace(aside, link)
        if durable:
            sync_folder(link.parent)


def tick_folders(path: str | os.PathLike[str]) -> VersionFolders:
    """Return versions that are ticks, in folders whose names query engines read as the column `tick`."""
    return VersionFolders(Path(path), f"{TICK}=")


def data_files(folder: Path) -> list[Path]:
    """List the files of a version, including those in partition folders; none for a folder that is gone."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return list(_files_below(folder))
    return []


def _files_below(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _files_below(folder / entry.name)
            elif entry.is_file():
                yield folder / entry.name


@dataclass(frozen=True, slots=True)
class _KnownFile:
    """A file as it is now: the same for all versions that share it, each of which changes its `ctime`."""

    path: Path = field(compare=False)
    device: int
    number: int
    size: int
    changed: int


def row_count(file: Path) -> int:
    """Return the number of rows in a Parquet file. Raises `OSError` and pyarrow's errors."""
    found = os.stat(file)
    return _row_count(_KnownFile(file, found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns))


def row_count_of_files(paths: Iterable[str]) -> int | None:
    """Return the number of rows in Parquet files; None if one of them has no readable count."""
    try:
        return sum(row_count(Path(path)) for path in paths)
    except (OSError, ValueError):  # pyarrow's own errors are of these kinds; an encrypted file is one
        return None


@lru_cache(maxsize=1 << 14)
def _row_count(file: _KnownFile) -> int:
    import pyarrow.parquet as pq

    return pq.read_metadata(file.path).num_rows


def share_files(files: Iterable[Path], old: Path, new: Path, *, durable: bool = True) -> None:
    """Share files of the version `old` with the folder `new`, which may contain others."""
    folders = dict[Path, Path]()
    for file in files:
        if (at := folders.get(file.parent)) is None:
            at = folders[file.parent] = new / file.parent.relative_to(old)
            at.mkdir(parents=True, exist_ok=True)
        take_over(file, at / file.name)
    for folder in {file.parent for file in new.rglob("*")} if durable else ():
        sync_folder(folder)
