"""File sources: common options, and the finished files at a path in name order.

A path is a folder (the files directly in it), a file, or a pattern with `*`, `?`, `[...]`. Files whose names
begin with `_` or `.` or end in `.tmp` are skipped as unfinished; writers should rename them when done. Links
that lead out of the folder are refused.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import BadInput, UnreadableSource
from penstock.io.source import Source, dead_letter_folder, set_fields
from penstock.path_or_url import local_path


@dataclass(frozen=True)
class Files(Source):
    """Base class of file sources: files in name order, including new ones if the run follows its sources.

    path:           a folder (the files directly in it), a file, or a pattern such as `in/*.json`.
                    Names that begin with `_` or `.` or end in `.tmp` are skipped as unfinished.
    dead_letter:    a folder for unreadable rows as JSON lines, one file per tick: row, reason, file and
                    number. Without it, an unreadable row ends the run.
    files_per_tick: number of whole files per tick, however many rows they have.
    """

    path: str
    dead_letter: str | None
    files_per_tick: int | None

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        dead_letter: str | os.PathLike[str] | None = None,
        files_per_tick: int | None = None,
    ) -> None:
        if files_per_tick is not None and files_per_tick < 1:
            raise BadInput(f"files_per_tick is {files_per_tick}", fix="give 1 or more, or leave it out")
        what = type(self).__name__
        letters = None if dead_letter is None else local_path(dead_letter, f"dead_letter of {what}")
        set_fields(self, path=local_path(path, what), dead_letter=letters, files_per_tick=files_per_tick)


@dead_letter_folder.register
def _(source: Files) -> str | None:
    return source.dead_letter


@dataclass(frozen=True, slots=True)
class Listing:
    """Files at a path. source: name of the source for errors. skip: absolute paths to leave out."""

    source: str
    path: str
    skip: frozenset[str] = frozenset()

    def files(self, *, may_be_none: bool) -> Iterator[tuple[str, Path]]:
        """List finished files as (name for positions, path), in name order.

        Raises `UnreadableSource` if the path does not exist or, unless `may_be_none`, has no file.
        """
        found = sorted(self._found())
        if not found and not may_be_none:
            raise self._error("has no file to read")
        if self.skip:
            found = [file for file in found if os.path.abspath(file[1]) not in self.skip]
        return iter(found)

    def _found(self) -> list[tuple[str, Path]]:
        path = Path(self.path)
        try:
            if path.is_dir():
                with os.scandir(path) as entries:
                    found = [e for e in entries if finished(e.name) and e.is_file()]
                self._check_links([e.path for e in found if e.is_symlink()], self.path)
                return [(e.name, Path(e.path)) for e in found]
            if path.exists():
                return [(path.name, path)]
        except OSError as error:
            raise self._error(f"cannot be listed: {error.strerror}") from error
        if not glob.has_magic(self.path):
            raise self._error("does not exist")
        names = [name for name in glob.glob(self.path) if finished(os.path.basename(name))]
        self._check_links(names, os.path.dirname(re.split(r"[*?[]", self.path, maxsplit=1)[0]) or ".")
        return [(name, Path(name)) for name in names]

    def _check_links(self, paths: list[str], folder: str) -> None:
        """Refuse links that lead out of a folder, so that its writers cannot expose other files."""
        inside = os.path.join(os.path.realpath(folder), "") if paths else ""
        for path in paths:
            if not os.path.realpath(path).startswith(inside):
                raise self._error(
                    f"holds {os.path.basename(path)!r}, a link that leads out of it",
                    "put the file itself there, or give its own folder as the source",
                )

    def _error(self, problem: str, fix: str = "") -> UnreadableSource:
        return UnreadableSource(
            f"source {self.source!r}: {self.path} {problem}",
            fix=fix
            or "give a folder, a file, or a pattern such as in/*.json; "
            "names that begin with _ or . or end in .tmp are skipped",
            source=self.source,
            path=self.path,
        )


def finished(name: str) -> bool:
    return not name.startswith(("_", ".")) and not name.endswith(".tmp")
