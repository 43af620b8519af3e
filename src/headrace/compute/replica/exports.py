"""Exports of a dataflow: the common parts of indexes, subscriptions, copies and written collections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from headrace.compute.errors import DataflowBroken, DataflowFailed, ResultTooLarge, origin_of, problem_of
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.protocol.commands import Id
from headrace.compute.protocol.responses import (
    BatchResponse,
    Counted,
    DroppedAt,
    EncodedUpdates,
    Problem,
    SubscribeResponse,
    Update,
)
from headrace.compute.protocol.row_batch import NotColumnar, RowBatch, decode_batch, encode
from headrace.compute.protocol.rows import row_size
from headrace.compute.replica.runtime import ReachedFrontiers
from headrace.errors import HeadraceError, Origin
from headrace.expr.types import Row, Schema


@dataclass(frozen=True, slots=True)
class FailedExport:
    """Failure of a dataflow: the error that replaces its contents, and its readers', from `time` on."""

    time: int
    error: DataflowFailed

    @property
    def lasting(self) -> bool:
        """Return whether a fresh replica would fail too.

        Otherwise the cause is outside the dataflow, and rebuilding it may succeed.
        """
        return self.error.origin is Origin.DATA


def failure_of(id: Id, name: str, time: int, cause: Exception) -> FailedExport:
    """Create the failure of a dataflow from `cause`, such as the failure of a dataflow it reads."""
    known = cause if isinstance(cause, HeadraceError) else None
    what = known.what if known is not None else f"{type(cause).__name__}: {cause}"
    lasting = origin_of(cause) is Origin.DATA
    error = (DataflowFailed if lasting else DataflowBroken)(
        f"{name or id} failed at time {time}: {what}",
        where=() if known is None else known.where,
        why=known.why if known is not None else "",
        fix=known.fix if known is not None and known.fix else _TAKE_BACK if lasting else _SEE_TO,
        id=id,
        time=time,
        cause=type(cause).__name__ if known is None else known.code,
    )
    error.__cause__ = cause
    return FailedExport(time, error)


_TAKE_BACK = "retract the rows that cause it, then drop the view and create it again"
_SEE_TO = "check the replica; it rebuilds the dataflow when it reconnects"


class ExportWriter(ABC):
    """Export of a dataflow, which receives its sink's changes time by time, and their upper.

    Times arrive in order. Changes at times from the upper on must not be visible yet.
    once: whether nothing after the as-of is needed.
    retry_at: timer reading before which nothing is retried.
    """

    once: ClassVar[bool] = False

    def __init__(self, id: Id, sink: str) -> None:
        self.id = id
        self.sink = sink
        self.retry_at = 0.0

    @abstractmethod
    def add(self, changes: Sequence[Counted], time: int) -> None:
        """Receive some of a time's changes, not before the last upper. Several calls may cancel out."""

    @abstractmethod
    def advance(self, upper: Frontier) -> None:
        """Settle all times before `upper`: their changes have been added."""

    def finish(self) -> None:
        """End the export because the dataflow has reached its until."""
        return

    @abstractmethod
    def fail(self, failed: FailedExport) -> None:
        """Replace the contents with an error from a time on, which must not be before the last upper."""

    @abstractmethod
    def clear(self) -> None:
        """Discard all changes because the dataflow, which has not advanced yet, starts over."""

    def flush(self) -> None:
        """Send the collected changes at the end of a slice."""
        return

    def work(self) -> bool:
        """Do a slice of the export's own work. Returns whether there is more to do at once."""
        return False

    def allow_compaction(self, since: Frontier) -> None:
        """Merge times before `since`."""
        return

    @abstractmethod
    def drop(self) -> None:
        """End the export because it was dropped."""

    def reached_frontiers(self, computed: Frontier, read: Frontier) -> ReachedFrontiers | None:
        """Return the export's frontiers, if it reports any. computed, read: progress of its dataflow."""
        return None


class IndexHold(Protocol):
    """Read hold that keeps an index readable from a time on, until moved or released."""

    def move(self, time: int) -> None: ...
    def release(self) -> None: ...


class Index(Protocol):
    """Index as served by a replica.

    upper:  frontier before which times are settled; just after the failure if it `failure_of`.
    since:  frontier from which it may be read, whatever is still stored. END: dropped.
    key_width: number of key columns.
    """

    @property
    def schema(self) -> Schema: ...
    @property
    def key_width(self) -> int: ...
    @property
    def upper(self) -> Frontier: ...
    @property
    def since(self) -> Frontier: ...
    @property
    def failed(self) -> FailedExport | None: ...

    def hold(self, time: int) -> IndexHold:
        """Keep the index readable from `time` on, which is not before `since`."""
        ...

    def allow_compaction(self, since: Frontier) -> None:
        """Merge times before `since`, unless a reader holds them."""
        ...


class IndexWriter(ExportWriter):
    """Export to an index, which outlives its drop while it has readers.

    The base class writes nothing, for stores that the engine fills.
    """

    def __init__(self, id: Id, sink: str, index: Index) -> None:
        super().__init__(id, sink)
        self.index = index

    def add(self, changes: Sequence[Counted], time: int) -> None:
        return

    def advance(self, upper: Frontier) -> None:
        return

    def fail(self, failed: FailedExport) -> None:
        return

    def clear(self) -> None:
        return

    def drop(self) -> None:
        return

    def allow_compaction(self, since: Frontier) -> None:
        self.index.allow_compaction(since)

    def reached_frontiers(self, computed: Frontier, read: Frontier) -> ReachedFrontiers:
        upper = self.index.upper
        return ReachedFrontiers(upper, read, upper, self.index.since)


class MissingCollection(ExportWriter):
    """Export of a dataflow that could not be built because its collection is missing. It never advances.

    report: called with the reason, to show to users.
    """

    def __init__(self, id: Id, sink: str, as_of: int, report: Callable[[Id, str], None]) -> None:
        super().__init__(id, sink)
        self._as_of = Frontier(as_of)
        self._report = report

    def add(self, changes: Sequence[Counted], time: int) -> None:
        return

    def advance(self, upper: Frontier) -> None:
        return

    def fail(self, failed: FailedExport) -> None:
        self._report(self.id, failed.error.what)

    def clear(self) -> None:
        return

    def drop(self) -> None:
        return

    def reached_frontiers(self, computed: Frontier, read: Frontier) -> ReachedFrontiers:
        return ReachedFrontiers(self._as_of, read, self._as_of, self._as_of)


def merge_changes(parts: Sequence[Sequence[Counted]]) -> Sequence[Counted]:
    """Consolidate changes from several parts. A row occurs at most once per part."""
    if len(parts) == 1:
        return parts[0]
    total: dict[Row, int] = {}
    for part in parts:
        add_up(total, part)
    return list(total.items())


def add_up(total: dict[Row, int], changes: Sequence[Counted], sign: int = 1) -> None:
    """Add changes to a total, or subtract them; rows whose count becomes 0 are removed."""
    for row, weight in changes:
        count = total.get(row, 0) + sign * weight
        if count:
            total[row] = count
        else:
            total.pop(row, None)


class SubscribeWriter(ExportWriter):
    """Export to a subscription: batches cover all times from 0 on, the first one beyond the as-of.

    Batches of rows at the as-of are encoded as they come, and sent as a batch of their own.

    limit: maximum bytes of a batch, or None for no limit.
    each_once: whether no row comes twice in what hydrates the dataflow; otherwise batches are read as rows,
        to be added up.
    """

    def __init__(
        self,
        id: Id,
        sink: str,
        *,
        skipped: int | None,
        schema: Schema,
        each_once: bool,
        limit: Callable[[], int | None],
        respond: Callable[[SubscribeResponse], None],
    ) -> None:
        super().__init__(id, sink)
        self._skipped = skipped
        self._schema = schema
        self._each_once = each_once
        self._limit = limit
        self._respond = respond
        self._time = -1
        self._open: list[Sequence[Counted]] = []
        self._updates: list[Update] = []
        self._chunks: list[bytes] = []
        self._encoded_size = 0
        self._exceeded: int | None = None
        self._lower = self._upper = START
        self._over = False

    def add(self, changes: Sequence[Counted], time: int) -> None:
        if time == self._skipped or self._over:
            return
        self._time = time
        if isinstance(changes, RowBatch) and self._each_once:
            self._encoded_size += changes.size
            limit = self._limit()
            if limit is not None and self._encoded_size > limit:
                self._exceeded = limit  # and it is not sent, even if more is allowed meanwhile
            if self._exceeded is None:
                self._chunks += encode(changes)
        else:
            self._open.append(changes)

    def advance(self, upper: Frontier) -> None:
        if self._encoded_size:
            self._close_encoded(self._time)
        if self._open:
            self._close(self._time)
        self._upper = upper

    def _close_encoded(self, time: int) -> None:
        if self._updates:
            self.flush()  # what earlier times changed
            if self._over:
                return
        chunks, size = self._chunks, self._encoded_size
        self._chunks, self._encoded_size = [], 0
        if self._exceeded is not None:
            too_large = _too_large(size, self._exceeded)
            self._poison(Frontier(time + 1), problem_of(too_large, id=self.id))
            return
        rows, self._open = merge_changes(self._open) if self._open else (), []
        try:
            chunks += encode(RowBatch.of_rows(self._schema, rows)) if rows else ()
        except NotColumnar:
            self._open = [rows, *(decode_batch(chunk, self._schema, "updates") for chunk in chunks)]
            return
        self._send(Frontier(time + 1), EncodedUpdates(time, tuple(chunks)))

    def _close(self, time: int) -> None:
        changes, self._open = merge_changes(self._open), []
        self._updates += [(row, time, weight) for row, weight in changes]

    def finish(self) -> None:
        self._upper = END
        self.flush()

    def flush(self) -> None:
        if self._over or self._upper <= self._lower:
            return
        limit = self._limit()
        size = 0 if limit is None else sum(row_size(row) for row, _, _ in self._updates)
        if limit is not None and size > limit:
            self._poison(self._upper, problem_of(_too_large(size, limit), id=self.id))
            return
        updates, self._updates = self._updates, []
        self._send(self._upper, tuple(updates))

    def fail(self, failed: FailedExport) -> None:
        self.flush()
        if not self._over:
            self._poison(Frontier(failed.time + 1), problem_of(failed.error))

    def _poison(self, upper: Frontier, problem: Problem) -> None:
        self._send(upper, problem)
        self._over = True
        self._updates = []
        self.clear()

    def _send(self, upper: Frontier, updates: tuple[Update, ...] | EncodedUpdates | Problem) -> None:
        self._respond(SubscribeResponse(self.id, BatchResponse(self._lower, upper, updates)))
        self._lower = upper

    def clear(self) -> None:
        self._open.clear()
        self._chunks, self._encoded_size, self._exceeded = [], 0, None

    def drop(self) -> None:
        if not self._lower.ended:
            self._respond(SubscribeResponse(self.id, DroppedAt(self._lower)))
        self._over = True


def _too_large(size: int, limit: int) -> ResultTooLarge:
    return ResultTooLarge(
        f"a batch of {size} bytes is above the limit of {limit}",
        why="the changes of a time are sent together",
        fix="subscribe without a snapshot, to fewer rows, or raise max_result_size",
        size=size,
        limit=limit,
    )
