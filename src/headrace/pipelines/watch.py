"""Watch over the files of a project and of its inputs, for runs that follow them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.input_identity import FileMark, mark_at, mark_of

if TYPE_CHECKING:
    from headrace.pipelines.spec import PipelineSpec

_LOOK_EVERY = 0.05
"""Seconds between two looks at the files, at least."""

_SHARE = 0.04
"""Share of the time that looking may take: of many files, a look takes long."""


@dataclass(slots=True)
class Watch:
    """Watch over the files that the last run has read.

    What has no files, such as a database, is looked at by the runs themselves.
    _seen: the marks of the last look. _listed: folders of the inputs, by the catalogue with the identity
    _catalogue.
    """

    spec: PipelineSpec
    _seen: Any = field(init=False)
    _catalogue: Any = None
    _listed: frozenset[str] = frozenset()

    def __post_init__(self) -> None:
        self._seen = self._look()

    def wait(self, longest: float) -> None:
        """Wait until a file differs from how it was before the last run, or for a number of seconds."""
        until = monotonic() + longest
        while True:
            start = monotonic()
            now = self._look()
            if now != self._seen or start >= until:
                # A file that is being written is looked at again after the run.
                self._seen = now
                return
            pause = max(_LOOK_EVERY, (monotonic() - start) / _SHARE)
            sleep(min(pause, max(0.0, until - monotonic())))

    def _look(self) -> dict[str, FileMark]:
        """Return the sizes and times of the files, by path."""
        own = (self.spec.file, *(file for file, _ in self.spec.files()))
        return dict(_marks(self._folders())) | {str(file): mark for file in own if (mark := mark_at(file))}

    def _folders(self) -> frozenset[str]:
        """Return the folders from which tables were made. They are read anew after each run."""
        catalogue = PipelineCatalog.identity_of_last(self.spec.storage)
        if catalogue is None or catalogue != self._catalogue:
            self._catalogue, self._listed = catalogue, frozenset(self._folders_now())
        return self._listed

    def _folders_now(self) -> set[str]:
        entries = PipelineCatalog.last_entries(self.spec.storage)
        found = set[str]()
        for entry in entries.values():
            for positions in entry.positions.values():
                for key, position in positions.items():
                    if isinstance(position, dict):
                        found |= {os.path.dirname(path) for path in position}
                    found |= {*places_of(key)}
        return found


def places_of(key: str) -> list[str]:
    """Return the folders that the key of an input names."""
    _, named, places = key.partition("files ")
    if named:
        return [place.removesuffix(f"{os.sep}*") for place in places.split(", ")]
    _, named, place = key.partition("Delta table ")
    return [os.path.join(place, "_delta_log")] if named else []


def _marks(folders: Iterable[str]) -> Iterator[tuple[str, FileMark]]:
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):  # It may be gone by now.
                    found = entry.stat()
                    # A folder of a partition changes with the first file in it.
                    if entry.is_file() or "=" in entry.name:
                        yield entry.path, mark_of(found)
