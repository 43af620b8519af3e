"""Sources as pull-streams: each value is the batch of a tick, with the positions after it."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from pathlib import Path
from typing import Any

from headrace.expr.row_classes import from_user, schema_of, to_user
from headrace.expr.types import Schema
from headrace.io.in_process import convert_rows
from headrace.io.source import (
    Batch,
    DeadLetters,
    Feed,
    Guarantee,
    Reader,
    dead_letter_folder,
    guarantee_of,
    open_source,
)
from headrace.pull import PullSource, PullTransformer, pull
from headrace.pull.edge import PullEdge
from headrace.pull.fusion import Kernel
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End, Read


class CloseOnce:
    """Idempotent close action, for a resource closed both by a module and by its owner."""

    def __init__(self, close: Callable[[], object]) -> None:
        self._close = close
        self._called = False

    def __call__(self) -> None:
        if not self._called:
            self._called = True
            self._close()

    cancel = __call__


class PendingPositions(ChainMap[Any, Any]):
    """Positions of batches not yet taken by a tick, layered over the committed ones.

    A reader records positions as it reads, but they take effect with the tick that takes the batch.
    """

    def __init__(self, kept: MutableMapping[Any, Any]) -> None:
        super().__init__({}, kept)

    def take_recorded(self) -> Mapping[Any, Any]:
        """Return the positions recorded since the last call, to be committed when a tick takes the batch."""
        new, self.maps[0] = self.maps[0], {}
        return new


def reader_source(
    name: str, reader: Reader, limit: int | None, close: CloseOnce, pending: PendingPositions | None = None
) -> PullSource:
    """Build a source of a reader's batches, `limit` rows (None: all available) per request, for one run.

    close: closes the reader. pending: the reader's positions, if they should travel with the batches.
    The reader is read only on request. If it has nothing yet, the answer comes later. The source is done when
    the reader is; a stop closes the reader before it is confirmed.
    """
    return PullSource.of(
        name, lambda module: ReaderSourceRun(module, reader, limit, close, pending).read, linear=True
    )


class ReaderSourceRun:
    """Running source over a reader."""

    def __init__(
        self,
        module: Module,
        reader: Reader,
        limit: int | None,
        close: CloseOnce,
        pending: PendingPositions | None,
    ) -> None:
        self._module = module
        self._reader = reader
        self._limit = limit
        self._close = close
        self._pending = pending
        module.cancel_at_end(close)

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._look(answer)
            return
        self._close()
        answer(abort)

    def _look(self, answer: AnswerTo) -> None:
        reader = self._reader
        batch = None if reader.done else reader.read(self._limit)
        if batch is not None:
            if self._pending is not None:
                batch = Batch(batch.rows, batch.bad, self._pending.take_recorded())
            answer(None, batch)
        elif reader.done:
            self._close()
            answer(True)
        else:
            self._module.later(reader.look_again, self._look, answer)


_ROWS = "rows"
_AT_ONCE = 1000
"""Limit on the rows per request, if all rows belong to one tick or to none."""


@guarantee_of.register
def _(end: PullSource) -> Guarantee:
    return Guarantee("exactly once", "if the source brings the same rows again: those taken are skipped")


def group_into_batches(feed: Feed, limit: int | None) -> PullTransformer:
    """Group rows into batches: each request, for `limit` rows or all, makes upstream's answer one batch.

    The position is the number of rows taken. A later run skips as many, so upstream must produce the same
    rows again. Raises `BadRow` for a value that is not a row.
    """

    def open(_module: Module, edge: PullEdge) -> Read:
        return (_Whole if limit is None else _Parts)(feed, edge, limit or _AT_ONCE).read

    return PullTransformer.of("rows", open, linear=True)


class _Parts:
    def __init__(self, feed: Feed, edge: PullEdge, limit: int) -> None:
        self._feed = feed
        self._edge = edge
        self._limit = limit
        self._taken: int = feed.taken.get(_ROWS) or 0
        self._skip = self._taken
        self._answer: AnswerTo | None = None

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is not None:
            self._edge(abort, answer)
        else:
            self._answer = answer
            self._ask()

    def _ask(self) -> None:
        self._edge(None, self._got, min(self._skip, _AT_ONCE) or self._limit)

    def _got(self, end: End | None, rows: Any = None, /) -> None:
        if end is not None:
            self._ended(end)
        elif self._skip:
            self._skip -= len(rows)
            self._ask()
        else:
            self._came(rows)

    def _came(self, rows: list[Any]) -> None:
        self._reply(rows)

    def _ended(self, end: End) -> None:
        assert self._answer is not None
        self._answer(end)

    def _reply(self, rows: list[Any]) -> None:
        assert self._answer is not None
        batch = convert_rows(rows, self._feed, f"{self._taken} rows")
        self._taken += len(rows)
        self._answer(None, Batch(batch.rows, batch.bad, {_ROWS: self._taken}))


class _Whole(_Parts):
    """Accumulator of all rows into one batch."""

    def __init__(self, feed: Feed, edge: PullEdge, limit: int) -> None:
        super().__init__(feed, edge, limit)
        self._rows: list[Any] = []

    def _came(self, rows: list[Any]) -> None:
        self._rows.extend(rows)
        self._ask()

    def _ended(self, end: End) -> None:
        rows, self._rows = self._rows, []
        if end is True and rows:
            self._reply(rows)
        else:
            super()._ended(end)


# --- `rows_of`: a source of `headrace.io` as the source of a pipeline, without a flow -------------


def rows_of(
    source: Any, rows: Any, *, name: str = "rows", follow: bool = False, read_rows: int = 1000
) -> PullSource:
    """Create a source of the rows of a `headrace.io` source, as objects of their class `rows`, in order.

    name:      name of the source in errors and dead letter files.
    follow:    keep looking for new files forever.
    read_rows: limit on the rows that are read at once and wait for requests.

    The source is opened anew in each run of the pipeline; a stop closes it before it is confirmed.
    Unreadable rows go to the source's `dead_letter` folder, if it has one: a file per batch read.

    >>> from datetime import datetime
    >>> from headrace.io import WallClock
    >>> from headrace.pull import collect, map, pull, take
    >>> pull(rows_of(WallClock("1s"), datetime), take(1), map(lambda at: at.microsecond), collect()).run()
    [0]

    Raises `UnknownRowType` for a class that is not a row type. The pipeline fails with `BadRow` and
    `UnreadableSource`, and with `BadInput` for what is not a source.
    """
    schema = schema_of(rows)
    letters = None
    folder = dead_letter_folder(source)
    if folder is not None:
        letters = DeadLetters(name, Path(folder), durable=False)

    def open(module: Module) -> Read:
        convert = from_user(schema, what=f"source {name!r}")
        reader = open_source(source, Feed(name, schema, follow=follow, from_user=convert))
        return ReaderSourceRun(module, reader, read_rows, CloseOnce(reader.close), None).read

    return pull(PullSource.of("rows_of", open, linear=True), _unpacked(schema, letters))


def _unpacked(schema: Schema, letters: DeadLetters | None) -> PullTransformer:
    """Transform batches to user rows, setting unreadable ones aside."""
    user = to_user(schema)

    def kernel() -> Kernel:
        number = 0

        def rows(batches: Iterable[Batch]) -> Iterator[Any]:
            nonlocal number
            for batch in batches:
                number += 1
                if letters is not None:
                    letters.prepare(number, batch.bad)
                    letters.publish(number)
                yield from map(user, batch.rows)

        return rows

    return PullTransformer.of_kernel("rows_of", kernel)
