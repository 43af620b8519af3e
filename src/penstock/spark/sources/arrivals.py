"""Arrivals: what a run has found for a source, as numbered files of a folder that Spark watches.

Spark takes files in the order of their times, which says nothing of files that
came together. So the driver looks for them itself, in the order of their names
as in-process, and files a *ticket* for each: a small file that holds the path.
Tickets get ascending times. Python rows become numbered files in the same way.
Which of them were taken is Spark's to remember, and the commit's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.io.listing import Listing, finished
from penstock.io.publish import folder_called

_FIRST_TIME = 1_000_000_000_000
"""In milliseconds, which is as fine as Spark looks."""


@dataclass(slots=True)
class Tickets:
    """The files of a source that were found so far. `look` finds more."""

    listing: Listing
    folder: Path
    _known: set[str] = field(default_factory=set[str], init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for ticket in self.folder.iterdir():
            if finished(ticket.name):
                self._known.add(json.loads(ticket.read_text())[0])

    def look(self, *, may_be_none: bool) -> None:
        """File a ticket for each new file. Raises `UnreadableSource` as `Listing.files` does."""
        for name, path in self.listing.files(may_be_none=may_be_none):
            if name not in self._known:
                number = len(self._known)
                place(self.folder, number, json.dumps([name, str(path.absolute())]).encode())
                self._known.add(name)


def arrived(checkpoint: Path, source: str) -> Path:
    """Where the arrivals of a source are, in the folder of a checkpoint."""
    return folder_called(checkpoint / "arrived", source)


def path_of(ticket: Path) -> Path:
    """The file that a ticket stands for."""
    return Path(json.loads(ticket.read_text())[1])


def spool_batches(batches: Iterable[list[tuple[Any, ...]]], folder: Path) -> None:
    """Write each batch of internal rows to a file of its own; those that are there are left as they are."""
    from penstock.state.codec import value_encoder

    folder.mkdir(parents=True, exist_ok=True)
    encode = value_encoder()
    for number, rows in enumerate(batches):
        if not numbered(folder, number).exists():
            place(folder, number, encode(rows))


def numbered(folder: Path, number: int) -> Path:
    return folder / f"{number:010d}"


def place(folder: Path, number: int, content: bytes) -> None:
    """Let a numbered file appear whole, later than those before it."""
    aside = folder / f".{number:010d}"
    aside.write_bytes(content)
    time = (_FIRST_TIME + number) * 1_000_000
    os.utime(aside, ns=(time, time))
    aside.rename(numbered(folder, number))
