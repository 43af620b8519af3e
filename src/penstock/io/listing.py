"""Which files a path means, in the order of their names, finished ones only.

A path is a folder (the files directly in it), a file, or a pattern with `*`,
`?`, `[...]`. A file is being written as long as its name begins with `_` or `.`
or ends in `.tmp`: writers should rename when they are done.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import UnreadableSource


@dataclass(frozen=True, slots=True)
class Listing:
    """source: the name of the flow's source, for errors."""

    source: str
    path: str

    def files(self, *, may_be_none: bool) -> Iterator[tuple[str, Path]]:
        """Finished files as (name that is kept in positions, path), in name order.

        Raises `UnreadableSource` where the path is not there or, unless `may_be_none`, has no file.
        """
        found = sorted(self._found())
        if not found and not may_be_none:
            raise self._error("has no file to read")
        return iter(found)

    def _found(self) -> list[tuple[str, Path]]:
        path = Path(self.path)
        try:
            if path.is_dir():
                with os.scandir(path) as entries:
                    return [(e.name, Path(e.path)) for e in entries if finished(e.name) and e.is_file()]
            if path.exists():
                return [(path.name, path)]
        except OSError as error:
            raise self._error(f"cannot be listed: {error.strerror}") from error
        if not glob.has_magic(self.path):
            raise self._error("is not there")
        return [(name, Path(name)) for name in glob.glob(self.path) if finished(os.path.basename(name))]

    def _error(self, problem: str) -> UnreadableSource:
        return UnreadableSource(
            f"source {self.source!r}: {self.path} {problem}",
            fix="give a folder, a file, or a pattern such as in/*.json; "
            "names that begin with _ or . or end in .tmp are left alone",
            source=self.source,
            path=self.path,
        )


def finished(name: str) -> bool:
    return not name.startswith(("_", ".")) and not name.endswith(".tmp")
