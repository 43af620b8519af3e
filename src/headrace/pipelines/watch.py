"""Watch over the files of a project and of its inputs, for runs that follow them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from headrace.pipelines.catalog import PipelineCatalog
from headrace.pipelines.input_identity import FileMark, mark_at, mark_of

if TYPE_CHECKING:
    from headrace.pipelines.spec import PipelineSpec

_LOOK_EVERY = 0.1
"""Seconds between two looks at the files."""


@dataclass(slots=True)
class Watch:
    """Watch over the files that the last run has read.

    What has no files, such as a database, is looked at by the runs themselves.
    """

    spec: PipelineSpec
    _seen: Any = field(init=False)

    def __post_init__(self) -> None:
        self._seen = self._look()

    def wait(self, longest: float) -> None:
        """Wait until a file differs from how it was before the last run, or for a number of seconds."""
        until = monotonic() + longest
        while (now := self._look()) == self._seen and monotonic() < until:
            sleep(min(_LOOK_EVERY, max(0.0, until - monotonic())))
        # A file that is being written is looked at again after the run.
        self._seen = now

    def _look(self) -> dict[str, FileMark]:
        """Return the sizes and times of the files, by path."""
        own = (self.spec.file, *(file for file, _ in self.spec.files()))
        return dict(_marks(self._folders())) | {str(file): mark for file in own if (mark := mark_at(file))}

    def _folders(self) -> set[str]:
        """Return the folders from which tables were made."""
        entries = PipelineCatalog.last_entries(self.spec.storage)
        found = set[str]()
        for entry in entries.values():
            for positions in entry.positions.values():
                for key, position in positions.items():
                    if isinstance(position, dict):
                        found |= {os.path.dirname(path) for path in position}
                    found |= {place for place in places_of(key) if os.path.isdir(place)}
        return found


def places_of(key: str) -> list[str]:
    """Return the folders that the key of an input names."""
    _, named, places = key.partition("files ")
    if named:
        return [place.removesuffix(f"{os.sep}*") for place in places.split(", ")]
    _, named, place = key.partition("Delta table ")
    return [os.path.join(place, "_delta_log")] if named else []


def _marks(folders: set[str]) -> Iterator[tuple[str, FileMark]]:
    for folder in folders:
        with suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with suppress(OSError):  # It may be gone by now.
                    found = entry.stat()
                    if entry.is_file():
                        yield entry.path, mark_of(found)
