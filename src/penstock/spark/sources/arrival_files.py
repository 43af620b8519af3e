"""Arrivals: new input of a source, as numbered files in a folder watched by Spark.

Spark takes files in the order of their times, which says nothing of files that
came together. So the driver looks for them itself, in the order of their names
as in-process, and files a *ticket* for each: a small file that holds the path.
Tickets get ascending times. Python rows become numbered files in the same way.

Spark remembers which numbers belong to a batch, and repeats a batch that failed with
the same numbers. The commit says which numbers have been read. All others stand for
nothing yet: each run decides anew what they mean, from what is there when it starts. So a
file that failed a tick may be corrected, removed or skipped; a number that is left over means nothing.
"""

from __future__ import annotations

import json
import os
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from penstock.io.delivery.atomic_files import subfolder_for
from penstock.io.files.file_source import Listing, finished

_FIRST_TIME = 1_000_000_000_000
"""Timestamp of the first arrival, in milliseconds, the resolution that Spark reads."""


@dataclass(frozen=True, slots=True)
class ReadArrivals:
    """Arrival numbers read by committed ticks: all `below` a number, and some `ahead` of it.

    Numbers are ahead where a batch was planned while files were being filed: a folder
    is not listed in one step.
    """

    below: int = 0
    ahead: frozenset[int] = frozenset()

    def __contains__(self, number: int) -> bool:
        return number < self.below or number in self.ahead

    def __len__(self) -> int:
        return self.below + len(self.ahead)

    def and_also(self, numbers: Iterable[int]) -> ReadArrivals:
        ahead = {*self.ahead, *(number for number in numbers if number >= self.below)}
        below = self.below
        while below in ahead:
            ahead.remove(below)
            below += 1
        return ReadArrivals(below, frozenset(ahead))


def read_arrivals(counters: Mapping[str, Any], source: str) -> ReadArrivals:
    """Restore the arrivals read from a source from the counters of a commit."""
    ahead = frozenset[int](counters.get("ahead", {}).get(source, ()))
    return ReadArrivals(counters.get("arrivals", {}).get(source, 0) - len(ahead), ahead)


def counters_of(read: Mapping[str, ReadArrivals]) -> dict[str, Any]:
    """Return the counters of a commit that `read_arrivals` restores from."""
    return {
        "arrivals": {name: len(arrivals) for name, arrivals in read.items()},
        "ahead": {name: sorted(arrivals.ahead) for name, arrivals in read.items() if arrivals.ahead},
    }


@dataclass(slots=True)
class FileTickets:
    """Discovered files of a source, each with a ticket. `look` finds more.

    read: the tickets whose meaning is settled.
    """

    listing: Listing
    folder: Path
    read: ReadArrivals
    _known: set[str] = field(default_factory=set[str], init=False)
    _free: deque[int] = field(default_factory=deque[int], init=False)
    _count: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        numbers = sorted(int(ticket.name) for ticket in self.folder.iterdir() if finished(ticket.name))
        self._count = numbers[-1] + 1 if numbers else 0
        for number in numbers:
            if number in self.read:
                self._known.add(json.loads(numbered_files(self.folder, number).read_text())[0])
            else:
                self._free.append(number)

    def look(self, *, may_be_none: bool) -> None:
        """File a ticket for each new file. Raises `UnreadableSource` like `Listing.files`."""
        for name, path in self.listing.files(may_be_none=may_be_none):
            if name not in self._known:
                self._file(name, str(path.absolute()))
                self._known.add(name)
        while self._free:
            publish_numbered(self.folder, self._free.popleft(), _ticket(None, None))

    def _file(self, name: str, path: str) -> None:
        number = self._free.popleft() if self._free else self._count
        self._count = max(self._count, number + 1)
        publish_numbered(self.folder, number, _ticket(name, path))


def _ticket(name: str | None, path: str | None) -> bytes:
    return json.dumps([name, path]).encode()


def arrivals_folder(checkpoint: Path, source: str) -> Path:
    """Return the folder of a source's arrivals in a checkpoint."""
    return subfolder_for(checkpoint / "arrived", source)


def path_of(ticket: Path) -> Path | None:
    """Return the file that a ticket stands for; None if the file is skipped."""
    path = json.loads(ticket.read_text())[1]
    return None if path is None else Path(path)


def spool_batches(batches: Iterable[list[tuple[Any, ...]]], folder: Path, read: ReadArrivals) -> None:
    """Write each batch of internal rows to a file of its own, keeping files that were already read.

    A number without a batch gets a file with None. Once that file has been read, this is permanent: later
    batches have higher numbers.
    """
    from penstock.state.codec import value_encoder

    folder.mkdir(parents=True, exist_ok=True)
    encode = value_encoder()
    nothing = encode(None)
    left = {int(file.name) for file in folder.iterdir() if finished(file.name)}

    def means_nothing(number: int) -> bool:
        if number not in left or number not in read:
            return False
        file = numbered_files(folder, number)
        return file.stat().st_size == len(nothing) and file.read_bytes() == nothing

    numbers = (number for number in count() if not means_nothing(number))
    # In this order: a number that no batch came for is not drawn.
    for rows, number in zip(batches, numbers):
        if number not in read or number not in left:
            publish_numbered(folder, number, encode(rows))
        left.discard(number)
    for number in left:
        if number not in read:
            publish_numbered(folder, number, nothing)


def spooled_batch(file: Path) -> list[tuple[Any, ...]]:
    """Read the rows of a file written by `spool_batches`."""
    from penstock.state.codec import decode

    return list(decode(file.read_bytes()) or ())


def numbered_files(folder: Path, number: int) -> Path:
    return folder / f"{number:010d}"


def publish_numbered(folder: Path, number: int, content: bytes) -> None:
    """Publish a numbered file atomically, with a timestamp after those before it."""
    aside = folder / f".{number:010d}"
    aside.write_bytes(content)
    time = (_FIRST_TIME + number) * 1_000_000
    os.utime(aside, ns=(time, time))
    aside.rename(numbered_files(folder, number))
