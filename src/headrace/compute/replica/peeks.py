"""Peeks: one-time reads of an index or a collection. Checked and tracked here, executed by a runtime.

A peek waits until its time is settled, with a hold on what it reads. It gets at most one answer.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Generic, TypeVar

from headrace.compute.collections.store import Collections
from headrace.compute.errors import (
    OutOfMemory,
    ResultGone,
    ResultTooLarge,
    StoreUnavailable,
    UnknownName,
    problem_of_any,
)
from headrace.compute.protocol.commands import CollectionTarget, Id, Parameters, Peek
from headrace.compute.protocol.responses import Canceled, Counted, PeekResponse, RowsResponse, Stashed
from headrace.compute.protocol.row_batch import EncodedRows, RowBatch, encode, rows_size
from headrace.compute.replica.building import Predicate, RuntimeContext, check_keys, check_since
from headrace.compute.replica.exports import FailedExport, Index, IndexHold
from headrace.compute.replica.feeds import CHUNK
from headrace.compute.replica.peek_finishing import peek_finisher
from headrace.errors import HeadraceError, WorkLimitExceeded
from headrace.expr.types import Schema
from headrace.file_system import make_private_file, make_private_folder

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


PIECE = 64
"""Rows on which a condition is evaluated at a time."""
WORK_SECONDS = 30.0
"""Limit on the time that a replica works for one peek, however patient the client is."""
log = logging.getLogger("headrace.replica")


@dataclass(slots=True, eq=False)
class AcceptedPeek:
    """Peek awaiting its answer.

    hold: hold on the index read. waiting: whether its time is unsettled. over: whether it has ended.
    """

    peek: Peek
    hold: IndexHold | None
    waiting: bool = True
    over: bool = False

    def release(self) -> None:
        """Release the peek's holds."""
        if self.hold is not None:
            self.hold.release()


IndexT = TypeVar("IndexT", bound=Index)
PendingT = TypeVar("PendingT", bound=AcceptedPeek)


class PendingPeeks(ABC, Generic[IndexT, PendingT]):
    """Pending peeks of a replica. Several threads may end them."""

    def __init__(self, around: RuntimeContext[IndexT], stash: PeekStash) -> None:
        self._around = around
        self._stash = stash
        self._pending: dict[bytes, PendingT] = {}
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._pending)

    def ask(self, peek: Peek) -> None:
        """Accept a peek, or refuse it."""
        try:
            if isinstance(peek.target, CollectionTarget):
                self._ask_collection(peek)
            else:
                self._ask_index(peek, self._checked(peek))
        except Exception as error:
            self._refuse(peek, error)

    def cancel(self, uuid: bytes) -> bool:
        """Answer `Canceled` if the peek is pending. Returns whether it was."""
        pending = self._take(uuid)
        if pending is None:
            return False
        self._around.respond(PeekResponse(uuid, Canceled()))
        self._stop(pending)
        return True

    def drop_all(self) -> None:
        """Drop all peeks without answering: their connection has ended."""
        for uuid in list(self._pending):
            pending = self._take(uuid)
            if pending is not None:
                self._stop(pending)

    def refuse_dropped(self, id: Id) -> None:
        """Refuse the peeks that wait for a dropped index. Peeks already reading the index continue."""
        with self._lock:
            found = [p for p in self._pending.values() if p.waiting and p.peek.target.id == id]
        for pending in found:
            if not isinstance(pending.peek.target, CollectionTarget):
                what = f"the index {id} was dropped before the time of the peek was settled"
                self._end(pending, UnknownName(what, name=id))

    def _checked(self, peek: Peek) -> IndexT:
        """Validate a peek and return its index. Raises if the peek is invalid."""
        id, time = peek.target.id, peek.time
        index = self._around.indexes.get(id)
        if index is None:
            raise UnknownName(f"the replica has no index {id}", name=id)
        check_since(id, time, index.since)
        check_not_failed(index.failed, time)
        check_keys(peek, index.key_width)
        return index

    @abstractmethod
    def _ask_index(self, peek: Peek, index: IndexT) -> None:
        """Accept a validated peek at an index."""

    @abstractmethod
    def _ask_collection(self, peek: Peek) -> None:
        """Accept a peek at a collection, or raise if it is invalid."""

    def _stop(self, pending: PendingT) -> None:
        """Stop working on a peek that is no longer pending."""
        return

    def _run(self, peek: Peek, schema: Schema, parts: Iterable[Iterable[Counted]]) -> PeekRun:
        plans = self._around.plans
        predicate = None if peek.predicate is None else plans.predicate(peek.predicate, schema)
        return PeekRun(peek, parts, schema, predicate, self._around.settings, self._stash)

    def _take(self, uuid: bytes) -> PendingT | None:
        """Remove and return a pending peek."""
        with self._lock:
            pending = self._pending.pop(uuid, None)
            if pending is None:
                return None
            pending.over = True
        pending.release()
        return pending

    def _end(self, pending: PendingT, answer: RowsResponse | Stashed | Exception) -> None:
        """Answer a peek, unless it has been cancelled."""
        if self._take(pending.peek.uuid) is None:
            if isinstance(answer, Stashed):
                self._stash.forget(answer.token)
        elif isinstance(answer, Exception):
            self._refuse(pending.peek, answer)
        else:
            self._around.respond(PeekResponse(pending.peek.uuid, answer))

    def _refuse(self, peek: Peek, error: Exception) -> None:
        if isinstance(error, MemoryError):
            error = _no_memory(error)
        elif not isinstance(error, HeadraceError):
            log.error("a mistake in Headrace", exc_info=error)
        problem = problem_of_any(error, id=peek.target.id, time=peek.time)
        self._around.respond(PeekResponse(peek.uuid, problem))


class PeekRun:
    """Execution of a peek at a settled time: each `next` of `slices` is a short piece of work.

    answer: set when the slices are exhausted. Errors raised within a slice become a `Problem`.
    """

    def __init__(
        self,
        peek: Peek,
        parts: Iterable[Iterable[Counted]],
        schema: Schema,
        predicate: Predicate | None,
        settings: Callable[[], Parameters],
        stash: PeekStash,
    ) -> None:
        self.peek = peek
        self.answer: RowsResponse | Stashed | None = None
        self._parts = parts
        self._predicate = predicate
        self._settings = settings
        self._stash = stash
        self._finish = peek_finisher(peek.finishing, schema)
        shown = peek.finishing.project
        self._shown = schema if shown is None else Schema(tuple(schema.fields[at] for at in shown))
        self._held: list[Sequence[Counted]] = []
        self._size = 0
        self._writer: StashWriter | None = None

    def slices(self) -> Iterator[None]:
        finish = self._finish
        for part in self._parts if self._predicate is None else in_pieces(self._parts):
            goes_on = finish.add_rows(filter_rows(self._predicate, part))
            for ready in finish.ready():
                self._send(ready)
            if not goes_on:
                break
            yield
        for part in finish.rows():
            self._send(part)
            yield
        if self._writer is None:
            self.answer = RowsResponse(tuple(counted for part in self._held for counted in part))
        else:
            self.answer = self._writer.finish()
            self._writer = None

    def cancel(self) -> None:
        """Release resources."""
        if self._writer is not None:
            self._writer.cancel()

    def _send(self, part: Sequence[Counted]) -> None:
        # Asked for anew: settings apply to peeks that are on their way, too.
        settings = self._settings()
        self._size += rows_size(part)
        check_size(self._size, settings)
        if self._writer is not None:
            self._writer.add(part)
            return
        self._held.append(part)
        if settings.peek_stash_size is not None and self._size > settings.peek_stash_size:
            self._writer = self._stash.writer(self._shown)
            for held in self._held:
                self._writer.add(held)
            self._held = []


def in_pieces(parts: Iterable[Iterable[Counted]]) -> Iterator[Sequence[Counted]]:
    """Divide parts into pieces small enough to evaluate a condition quickly."""
    for part in parts:
        rows = part if isinstance(part, list | tuple) else list(part)
        for at in range(0, len(rows), PIECE):
            yield rows[at : at + PIECE]


def filter_rows(predicate: Predicate | None, rows: Iterable[Counted]) -> Sequence[Counted]:
    """Filter rows by a peek's predicate, dropping negative counts, as insertions may still follow."""
    if predicate is None:
        return rows.positive() if isinstance(rows, RowBatch) else [each for each in rows if each[1] > 0]
    return [counted for counted in rows if counted[1] > 0 and predicate(counted[0]) is True]


def check_size(size: int, settings: Parameters) -> None:
    """Raise `ResultTooLarge` for an answer above the limit."""
    limit = settings.max_result_size
    if limit is not None and size > limit:
        raise ResultTooLarge(
            f"the rows of the answer are {size} bytes, above the limit of {limit}",
            fix="ask for fewer rows or columns, or raise max_result_size",
            size=size,
            limit=limit,
        )


def check_work(seconds: float) -> None:
    """Raise `WorkLimitExceeded` for a peek that a replica has worked on for too long."""
    if seconds > WORK_SECONDS:
        raise WorkLimitExceeded(
            f"a replica has worked on the peek for {seconds:.0f} s, and {WORK_SECONDS:.0f} s is the limit",
            fix="ask by key or with a simpler condition, or make a view of what is asked",
            reached=seconds,
            limit=WORK_SECONDS,
        )


def check_not_failed(failed: FailedExport | None, time: int) -> None:
    """Raise the error that replaces the contents of an index or collection at a time."""
    if failed is not None and time >= failed.time:
        raise failed.error


def collection_parts(store: Collections, peek: Peek) -> Iterator[Iterable[Counted]]:
    """Yield a collection's candidate rows for a peek: rows with its keys, or all rows."""
    wanted = None if peek.keys is None else set(peek.keys)
    for part in store.snapshot(peek.target.id, peek.time, CHUNK):
        yield part if wanted is None else [counted for counted in part if counted[0] in wanted]


def _no_memory(error: MemoryError) -> OutOfMemory:
    return OutOfMemory(
        "the replica lacks the memory for the answer",
        why=str(error),
        fix="ask for fewer rows or columns, or give the replica more memory",
    )
