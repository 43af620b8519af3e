"""Input discovered by the driver: files, batches of given rows, and versions of a table.

The driver takes from each source what the next tick is to read, and hands its locations to the tasks. How
far each source was read is kept as in-process (`headrace.io.source`), as state of the checkpoint with each
commit. So Spark keeps no positions of these sources, and a tick that was not committed has read nothing.
"""

from __future__ import annotations

import os
import time
import uuid
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, MutableMapping, Sized
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from headrace.expr.types import Rows
from headrace.io.files.file_source import WHOLE, FilePart, PendingFile, PendingFiles
from headrace.io.source import DONE
from headrace.state.arranged_store import stored_entries
from headrace.state.chain import make_durable
from headrace.state.codec import decode, value_encoder
from headrace.state.commit import POSITIONS
from headrace.state.lazy_slots import Form
from headrace.state.shard import ShardState

if TYPE_CHECKING:
    from headrace.io.files.file_source import Listing
    from headrace.io.in_process import TickTime
    from headrace.state.chain import BatchChain
    from headrace.state.checkpoint import Checkpoint


Positions = MutableMapping[Any, Any]
_BATCHES = "batches"
_INFLATION = 6
"""Bytes of text to a byte of a compressed file, roughly."""


@dataclass(frozen=True, slots=True)
class FoundInput:
    """Location of input of a source, and its size as far as known before it is read.

    size: in bytes. count: returns the number of rows, or None if only reading would tell.
    """

    location: str
    size: int = 0
    count: Callable[[], int | None] = lambda: None


class Arrivals(ABC):
    """Input of a source, discovered by the driver.

    ends:   no more input can arrive once all of it was taken.
    newest: when the newest of it was found, in seconds since 1970; None before the first.
    """

    ends: ClassVar[bool] = False
    newest: float | None = None

    @abstractmethod
    def look(self) -> None:
        """Look for new input. Raises `UnreadableSource` and `InputChanged`."""

    @abstractmethod
    def take(self) -> list[FoundInput]:
        """Return the next tick's input, in order, and record it as read."""

    def take_all(self) -> list[FoundInput]:
        """Take the input of a bounded source."""
        return [*chain.from_iterable(iter(self.take, []))]

    @property
    @abstractmethod
    def waiting(self) -> int | None:
        """Number of locations found and not taken yet; None if unknown."""


class FileArrivals(Arrivals):
    """Files in the order of their names, at most `per_tick` in a tick.

    divide: divides a file into parts that several tasks read. count: the rows of a part, if they are known.
    """

    def __init__(
        self,
        listing: Listing,
        positions: Positions,
        per_tick: int | None,
        divide: Callable[[PendingFile], list[FilePart]],
        count: Callable[[PendingFile, FilePart], int | None],
        *,
        may_be_none: bool,
    ) -> None:
        self._divide = divide
        self._count = count
        self._files = PendingFiles(listing, positions)
        self._positions = positions
        self._per_tick = per_tick
        self._waiting = deque[PendingFile]()
        self._find(may_be_none=may_be_none)

    def look(self) -> None:
        self._find(may_be_none=True)

    def _find(self, *, may_be_none: bool) -> None:
        found = self._files.look(may_be_none=may_be_none)
        if found:
            self._waiting.extend(found)
            self.newest = time.time()

    def take(self) -> list[FoundInput]:
        taken = [self._waiting.popleft().now() for _ in islice(range(len(self._waiting)), self._per_tick)]
        for file in taken:
            self._positions[file.name] = file.position(DONE)
            self._files.finished(file)
        return [found for file in taken for found in self._parts(file)]

    def _parts(self, file: PendingFile) -> list[FoundInput]:
        parts = self._divide(file)
        size = file.size * (_INFLATION if file.name.endswith(".gz") else 1) // len(parts)
        return [FoundInput(location_of(file.absolute, x), size, partial(self._count, file, x)) for x in parts]

    @property
    def waiting(self) -> int:
        return len(self._waiting)


def location_of(path: str, part: FilePart) -> str:
    """Return the location of a part of a file."""
    return path if part == WHOLE else "\0".join((path, str(part.start), str(part.stop or "")))


def encoded_location(location: str) -> str:
    """Encode a location as text for Spark, which cannot represent file names that are not UTF-8."""
    return os.fsencode(location).decode("latin-1")


def decoded_location(text: str) -> str:
    return os.fsdecode(text.encode("latin-1"))


def part_at(location: str) -> tuple[Path, FilePart]:
    """Split a location into the file and the part of it."""
    path, *ends = location.split("\0")
    if not ends:
        return Path(path), WHOLE
    start, stop = ends
    return Path(path), FilePart(int(start), int(stop) if stop else None)


class BatchArrivals(Arrivals):
    """Batches of the user's rows, one per tick, each written to a file below `folder` for its tick."""

    ends = True

    def __init__(
        self,
        batches: Iterable[Iterable[Any]],
        convert: Callable[[list[Any]], Rows],
        folder: Path,
        positions: Positions,
    ) -> None:
        self._taken: int = positions.get(_BATCHES) or 0
        self._count = len(batches) if isinstance(batches, Sized) else None
        self._batches = islice(batches, self._taken, None)
        self._convert = convert
        self._folder = folder
        self._positions = positions

    def look(self) -> None:
        return

    def take(self) -> list[FoundInput]:
        batch = next(self._batches, None)
        if batch is None:
            return []
        found = write_batch(self._folder, self._taken, self._convert(list(batch)))
        self._taken += 1
        self._positions[_BATCHES] = self._taken
        self.newest = time.time()
        return [found]

    @property
    def waiting(self) -> int | None:
        return None if self._count is None else max(0, self._count - self._taken)


class TimeArrivals(Arrivals):
    """Times of this machine, each written to a file below `folder` for its tick."""

    def __init__(
        self,
        clock: TickTime,
        convert: Callable[[list[Any]], Rows],
        folder: Path,
        positions: Positions,
        *,
        follow: bool,
    ) -> None:
        self._clock, self._convert, self._folder = clock, convert, folder
        self._positions, self._follow, self._asked = positions, follow, 0

    def look(self) -> None:
        return

    def take(self) -> list[FoundInput]:
        if self._asked and not self._follow:
            return []
        time = self._clock.take(self._positions, begins=not self._asked)
        self._asked += 1
        if time is None:
            return []
        self.newest = time.timestamp()
        return [write_batch(self._folder, self._asked, self._convert([time]))]

    @property
    def waiting(self) -> int | None:
        return None


def write_batch(folder: Path, number: int, rows: Rows) -> FoundInput:
    """Write internal rows to a file for tasks to read."""
    folder.mkdir(parents=True, exist_ok=True)
    path, content = folder / str(number), value_encoder()(rows)
    path.write_bytes(content)
    count = len(rows)
    return FoundInput(str(path), len(content), lambda: count)


def read_batch(path: Path) -> Rows:
    """Read the rows of a file written by `write_batch`."""
    return list(decode(path.read_bytes()))


class SourcePositions:
    """Positions of the sources read by the driver: for each source, a mapping as in `Feed.taken`."""

    def __init__(self, checkpoint: Checkpoint, sources: Iterable[str], *, durable: bool) -> None:
        self._checkpoint = checkpoint
        self._slots = {self._slot(name): Form() for name in sources}
        self._attempt = uuid.uuid4().hex[:8]
        self._durable = durable
        self._opened: ShardState | None = None

    @property
    def _state(self) -> ShardState:
        if self._opened is None:
            at = self._checkpoint
            self._opened = ShardState(at.folder, "sources", at.sources, self._slots)
        return self._opened

    @staticmethod
    def _slot(source: str) -> str:
        return f"{source}.{POSITIONS}"

    def of(self, source: str) -> Positions:
        return self._state.slots[self._slot(source)]

    def write(self, tick: int) -> BatchChain:
        """Write the changed positions and return the chain to commit with this tick."""
        if self._opened is None:
            return self._checkpoint.sources
        changed = self._state.finish(tick, self._attempt)
        if self._durable:
            make_durable(self._state.written)
        return changed

    def forget(self, source: str) -> None:
        """Drop the positions of a source removed from the flow, like the state of removed operators."""
        slot, at = self._slot(source), self._checkpoint
        self._slots[slot] = Form()
        for _, key, _ in stored_entries(at.folder, at.sources, slot.__eq__):
            del self._state.slots[slot][decode(key)]

    def discard(self) -> None:
        """Discard positions recorded since the last commit."""
        if self._opened is not None:
            self._opened.discard()

    def advance(self, chain: BatchChain) -> None:
        """Continue from a committed chain."""
        if self._opened is not None:
            self._opened.advance(chain)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()
