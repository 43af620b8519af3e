"""File reader for a source: one file after another, in batches, from any position."""

from __future__ import annotations

import gzip
import zlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, cast

from penstock.errors import UnreadableSource
from penstock.io.files.file_source import Files, Listing, UnreadFile, UnreadFiles
from penstock.io.source import DONE, BadRecord, Batch, Feed, Reader, printable

Record = tuple[Any, ...] | list[tuple[Any, ...]] | BadRecord
"""Result of reading a record: a row, the rows of a change data record, or why it is unreadable."""


class FileFormat(ABC):
    """File format bound to one feed."""

    @abstractmethod
    def records(self, path: Path, skip: int) -> Iterator[Record]:
        """Yield the records of a file after the first `skip`.

        Raises `UnreadableSource` for a file of another format; lets `OSError` and `UnicodeDecodeError` pass.
        """


class FilesReader(Reader):
    """Reader of files in name order; a tick may end within a file.

    With `files_per_tick`, a tick takes that many whole files, regardless of the row limit. With
    `dead_letter`, unreadable rows are returned to the caller instead of ending the run.
    """

    def __init__(
        self,
        listing: Listing,
        file_format: FileFormat,
        feed: Feed,
        source: Files,
    ) -> None:
        self._files = UnreadFiles(listing, feed.taken)
        self._format = file_format
        self._feed = feed
        self._files_per_tick = source.files_per_tick
        self._set_aside = source.dead_letter is not None
        self._waiting = deque(self._files.look(may_be_none=feed.follow or feed.resumed))
        self._open: Iterator[Record] | None = None
        self._file: UnreadFile
        self._rows_taken = 0

    def read(self, limit: int | None) -> Batch | None:
        batch = Batch([])
        room = None if self._files_per_tick else limit
        files_left = self._files_per_tick or -1
        while (room is None or room > 0) and files_left != 0 and self._next_file():
            count, ended = self._take(batch, room)
            if not batch.rows and not batch.bad:
                continue  # An empty file, or records without rows, makes no tick.
            if room is not None:
                room -= count
            if ended:
                files_left -= 1
        return batch if batch.rows or batch.bad else None

    def _next_file(self) -> bool:
        """Open the next file if none is open. Returns False if no file is available."""
        if self._open is not None:
            return True
        if not self._waiting and self._feed.follow:
            self._waiting.extend(self._files.look(may_be_none=True))
        if not self._waiting:
            self.done = not self._feed.follow
            return False
        self._file = self._waiting.popleft()
        self._rows_taken = self._file.rows
        self._open = self._format.records(Path(self._file.path), self._file.rows)
        return True

    def _take(self, batch: Batch, room: int | None) -> tuple[int, bool]:
        """Move up to `room` records of the open file to the batch. Returns the count, and whether the file
        ended.
        """
        assert self._open is not None
        count = 0
        try:
            for record in islice(self._open, room):
                count += 1
                if type(record) is tuple:
                    batch.rows.append(record)
                elif type(record) is list:
                    batch.rows.extend(record)
                elif self._set_aside:
                    batch.bad.append(record)  # type: ignore[arg-type]
                else:
                    raise record.error(self._feed.name)  # type: ignore[union-attr]
        except UnreadableSource:
            raise
        except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
            raise unreadable(self._feed.name, Path(self._file.path), str(error)) from error
        self._rows_taken += count
        ended = room is None or count < room
        self._feed.taken[self._file.name] = self._file.position(DONE if ended else self._rows_taken)
        if ended:
            self._open = None
            self._files.finished(self._file)
        return count, ended

    def close(self) -> None:
        super().close()
        close = getattr(self._open, "close", None)
        if close is not None:
            close()  # a generator, which closes its file
        self._open = None


def unreadable(source: str, path: Path, why: str, fix: str = "") -> UnreadableSource:
    """Build the error for a file that cannot be read."""
    return UnreadableSource(
        f"source {source!r} cannot read {printable(path)}",
        why=why,
        fix=fix or "replace the file, or move it out of the source's folder",
        source=source,
        path=str(path),
        file=str(path),
    )


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading, decompressed if its name ends in .gz."""
    if path.suffix == ".gz":
        return cast(BinaryIO, gzip.open(path, "rb"))
    return path.open("rb")
