"""Stash of results too large for one message: files, fetched in parts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_bytes

from headrace.compute.errors import ResultGone, StoreUnavailable
from headrace.compute.protocol.responses import Counted, Stashed
from headrace.compute.protocol.row_batch import EncodedRows, encode, rows_size
from headrace.expr.types import Schema
from headrace.private_files import make_private_file, make_private_folder

KEPT = 600_000
"""Milliseconds before an unfetched result expires."""
INLINE = 100
"""Number of rows sent at once, for a preview."""
_LENGTH = 8


class PeekStash:
    """Stash of result files in a replica's folder, which do not outlive the process.

    clock: milliseconds.
    """

    def __init__(self, folder: Path, clock: Callable[[], int]) -> None:
        self._folder = folder
        self._clock = clock
        self._kept: dict[bytes, tuple[int, Schema]] = {}
        for left in folder.glob("*.rows"):
            left.unlink(missing_ok=True)

    def writer(self, schema: Schema) -> StashWriter:
        """Start a new result of rows of a schema. Raises `StoreUnavailable`."""
        with self.translated_errors():
            make_private_folder(self._folder)
            return StashWriter(self, token_bytes(16), schema)

    @contextmanager
    def translated_errors(self) -> Generator[None]:
        """Convert file-system errors to `StoreUnavailable`."""
        try:
            yield
        except OSError as error:
            raise StoreUnavailable(
                f"a large result cannot be kept in {self._folder}: {error.strerror or error}",
                fix="make room in the folder of the replica, or make it writable; or ask for fewer rows",
            ) from error

    def path(self, token: bytes) -> Path:
        return self._folder / f"{token.hex()}.rows"

    def keep(self, token: bytes, schema: Schema) -> None:
        self._kept[token] = self._clock() + KEPT, schema

    def fetch(self, token: bytes) -> Iterator[EncodedRows]:
        """Read the rows of a result in parts, once. Raises `ResultGone` if it is missing or unreadable."""
        kept = self._kept.pop(token, None)
        if kept is None:
            raise ResultGone(
                "the rows of this result are not here any more",
                why="they were fetched, ten minutes have passed, or the replica has been restarted",
                fix="send the peek again",
            )
        return self._parts(self.path(token), kept[1])

    def _parts(self, path: Path, schema: Schema) -> Iterator[EncodedRows]:
        try:
            with path.open("rb") as file:
                while length := file.read(_LENGTH):
                    yield EncodedRows(file.read(int.from_bytes(length, "big")), schema)
        except OSError as error:
            raise ResultGone(
                "the rows of this result cannot be read",
                why=error.strerror or str(error),
                fix="send the peek again, and check the disk of the replica",
            ) from error
        finally:
            self._remove(path)

    def forget(self, token: bytes) -> None:
        """Delete a result."""
        self._kept.pop(token, None)
        self._remove(self.path(token))

    def _remove(self, path: Path) -> None:
        with suppress(OSError):  # it stays on a read-only disk
            path.unlink(missing_ok=True)

    def expire(self) -> None:
        """Delete results that were not fetched in time."""
        if not self._kept:
            return
        now = self._clock()
        for token in [token for token, (until, _) in list(self._kept.items()) if until <= now]:
            self.forget(token)

    def close(self) -> None:
        for token in list(self._kept):
            self.forget(token)


class StashWriter:
    """Writer of one result. Its methods raise `StoreUnavailable`; then `cancel` it."""

    def __init__(self, stash: PeekStash, token: bytes, schema: Schema) -> None:
        self._stash = stash
        self._token = token
        self._schema = schema
        make_private_file(stash.path(token))
        self._file = stash.path(token).open("wb")
        self._rows = 0
        self._size = 0
        self._inline: list[Counted] = []

    def add(self, rows: Sequence[Counted]) -> None:
        if not rows:
            return
        for data in encode(rows):
            with self._stash.translated_errors():
                self._file.write(len(data).to_bytes(_LENGTH, "big") + data)
        self._rows += len(rows)
        self._size += rows_size(rows)
        if len(self._inline) < INLINE:
            self._inline += rows[: INLINE - len(self._inline)]

    def finish(self) -> Stashed:
        with self._stash.translated_errors():
            self._file.close()
        self._stash.keep(self._token, self._schema)
        return Stashed(self._token, self._rows, self._size, tuple(self._inline))

    def cancel(self) -> None:
        with suppress(OSError):  # the disk is full
            self._file.close()
        self._stash.forget(self._token)
