"""Subscriptions: the changes of a sink, sent as they are settled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headrace.compute.errors import ResultTooLarge
from headrace.compute.frontier import END, START, Frontier
from headrace.compute.problem_conversion import problem_of
from headrace.compute.protocol.dataflow import Id
from headrace.compute.protocol.responses import (
    Batch,
    Counted,
    DroppedAt,
    EncodedUpdates,
    Problem,
    SubscribeResponse,
    Update,
)
from headrace.compute.protocol.row_batch import NotColumnar, RowBatch, decode_batch, encode
from headrace.compute.protocol.rows import row_size
from headrace.compute.replica.exports import ExportWriter, Failed, together
from headrace.expr.types import Schema


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
        rows, self._open = together(self._open) if self._open else (), []
        try:
            chunks += encode(RowBatch.of_rows(self._schema, rows)) if rows else ()
        except NotColumnar:
            self._open = [rows, *(decode_batch(chunk, self._schema, "updates") for chunk in chunks)]
            return
        self._send(Frontier(time + 1), EncodedUpdates(time, tuple(chunks)))

    def _close(self, time: int) -> None:
        changes, self._open = together(self._open), []
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

    def fail(self, failed: Failed) -> None:
        self.flush()
        if not self._over:
            self._poison(Frontier(failed.time + 1), problem_of(failed.error))

    def _poison(self, upper: Frontier, problem: Problem) -> None:
        self._send(upper, problem)
        self._over = True
        self._updates = []
        self.clear()

    def _send(self, upper: Frontier, updates: tuple[Update, ...] | EncodedUpdates | Problem) -> None:
        self._respond(SubscribeResponse(self.id, Batch(self._lower, upper, updates)))
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
