"""Which files a path means, in the order of their names, finished ones only.

A path is a folder (the files directly in it), a file, or a pattern with `*`,
`?`, `[...]`. A file is being written as long as its name begins with `_` or `.`
or ends in `.tmp`: writers should rename when they are done. A link that leads out
of the folder is refused.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import UnreadableSource


@dataclass(frozen=True, slots=True)
class Listing:
    """source: the name of the flow's source, for errors. skip: files to leave out, as absolute paths."""

    source: str
    path: str
    skip: frozenset[str] = frozenset()

    def files(self, *, may_be_none: bool) -> Iterator[tuple[str, Path]]:
        """Finished files as (name that is kept in positions, path), in name order.

        Raises `UnreadableSource` where the path is not there or, unless `may_be_none`, has no file.
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
            raise self._error("is not there")
        names = [name for name in glob.glob(self.path) if finished(os.path.basename(name))]
        self._check_links(names, os.path.dirname(re.split(r"[*?[]", self.path, maxsplit=1)[0]) or ".")
        return [(name, Path(name)) for name in names]

    def _check_links(self, paths: list[str], folder: str) -> None:
        """Who may write into a folder shall not choose files elsewhere to be read."""
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
            "names that begin with _ or . or end in .tmp are left alone",
            source=self.source,
            path=self.path,
        )


def finished(name: str) -> bool:
    return not name.startswith(("_", ".")) and not name.endswith(".tmp")
