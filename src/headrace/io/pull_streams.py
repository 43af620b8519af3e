"""Sources and sinks as pull-streams, for the in-process engine and for pipelines without a flow.

Each value of a source is the batch of a tick, with the positions after it; rows of an asynchronous iterable
are read ahead by a background task.

Writers receive the two steps of a tick, user sinks receive its changes. A flow answers a request with
`Prepare`. Once every sink has asked again, the flow commits the tick and answers with `Publish`. Once every
sink has asked again, the next tick begins. A slow sink therefore holds back the sources, and a tick that
any sink fails to prepare is published by none.
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import (
    AsyncIterable,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from headrace.expr.row_classes import from_user, schema_of, to_user
from headrace.expr.types import Rows, Schema
from headrace.io.in_process import convert_rows
from headrace.io.outbox import Spool
from headrace.io.sink import SinkRequest, Writer
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
from headrace.pull import PullSink, PullSource, PullTransformer, pull
from headrace.pull.edge import PullEdge
from headrace.pull.errors import CallCancelled
from headrace.pull.fusion import Kernel
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End, Read

if TYPE_CHECKING:
    import asyncio

    from headrace.pull.pipeline_runtime import Cancellable


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


def prefetch_rows(rows: AsyncIterable[Any], room: int | None) -> PullSource:
    """Build a source of an asynchronous iterable's rows that reads up to `room` rows ahead (None: unlimited).

    Reading starts with the first request. An exception of the iterable is answered after the rows before it.
    A stop cancels the pending read, and is confirmed once the iterable is closed.
    """
    return PullSource.of(
        "async rows", lambda module: _Ahead(module, rows, room).read, batches=True, linear=True
    )


class _Ahead:
    def __init__(self, module: Module, rows: AsyncIterable[Any], room: int | None) -> None:
        self._module = module
        self._iterable = rows
        self._room = room
        self._rows: AsyncIterator[Any] | None = None
        self._waiting: deque[Any] = deque()
        self._ask: tuple[AnswerTo, int] | None = None
        self._answering = False
        self._task: Cancellable | None = None
        self._left: asyncio.Event | None = None
        self._free: asyncio.Event | None = None
        self._ended = False
        self._failure: Exception | None = None
        self._stopped = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._stop(abort, answer)
            return
        self._ask = answer, most
        if self._task is None:
            self._task = self._module.spawn(self._bring(), lambda _error, _result: None)
        self._answer()

    def _answer(self) -> None:
        """Answer the pending request if rows are available."""
        self._answering = False
        if self._ask is None or self._stopped:
            return
        (answer, most), waiting = self._ask, self._waiting
        if waiting:
            self._ask = None
            answer(None, [waiting.popleft() for _ in range(min(most, len(waiting)))])
            if self._free is not None:
                self._free.set()
        elif self._ended:
            self._ask = None
            answer(self._failure or True)

    def _news(self) -> None:
        # Answer later: more rows may arrive before the task waits.
        if self._ask is not None and not self._answering and not self._stopped:
            self._answering = True
            self._module.later(0, self._answer)

    # -- the task -------------------------------------------------------------------------------

    async def _bring(self) -> None:
        import asyncio

        self._left, self._free = asyncio.Event(), asyncio.Event()
        try:
            await self._draw(self._free)
            await self._close()
        except asyncio.CancelledError:
            if self._stopped:
                raise
            self._failure = self._cancelled()
        except Exception as error:
            self._failure = self._failure or error
        finally:
            self._left.set()
        self._ended = True
        self._news()

    async def _draw(self, free: asyncio.Event) -> None:
        try:
            self._rows = aiter(self._iterable)
            async for row in self._rows:
                while self._room is not None and len(self._waiting) >= self._room:
                    free.clear()
                    await free.wait()
                self._waiting.append(row)
                self._news()
        except Exception as error:
            self._failure = error

    def _cancelled(self) -> CallCancelled:
        return CallCancelled(
            "the next row of an asynchronous source was cancelled",
            where=[self._module.location],
            why="The run did not cancel it: the source cancelled itself, or awaited a cancelled task.",
            fix="catch CancelledError in the source where it awaits another task",
        )

    async def _close(self) -> None:
        if hasattr(self._rows, "aclose"):
            await self._rows.aclose()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue, reportUnknownMemberType]

    # -- the end --------------------------------------------------------------------------------

    def _stop(self, cause: End, answer: AnswerTo) -> None:
        self._stopped = True
        self._waiting.clear()
        if self._task is None or self._ended:
            answer(cause)
            return
        self._task.cancel()
        self._module.spawn(self._closed(), lambda error, _result: answer(error or cause))

    async def _closed(self) -> None:
        if self._left is not None:  # otherwise the task had not started
            await self._left.wait()
            await self._close()


class Prepare(NamedTuple):
    """Command to prepare a tick's changes invisibly to readers. Rows end with their weight.

    publish: also publish them at once; no `Publish` follows.
    """

    tick: int
    rows: Rows
    publish: bool = False


class Publish(NamedTuple):
    """Command to publish a prepared tick, which is now committed."""

    tick: int


Step = Prepare | Publish


def writer_sink(name: str, writer: Writer, close: CloseOnce) -> PullSink:
    """Build a sink, for one run, over a recovered writer, which it closes at the end."""

    def open(module: Module, edge: PullEdge) -> None:
        def got(end: End | None, step: Any = None, /) -> None:
            if end is None:
                if step.__class__ is Publish:
                    writer.publish(step.tick)
                else:
                    writer.prepare(step.tick, step.rows)
                    if step.publish:
                        writer.publish(step.tick)
                edge(None, got)
            elif end is True:
                module.done()
            else:
                module.fail(end)

        def closing(_error: Exception | None, closed: Callable[..., object]) -> None:
            close()
            closed()

        module.closing(closing)
        edge(None, got)

    return PullSink.of(name, open)


@guarantee_of.register
def _(end: PullSink) -> Guarantee:
    return Guarantee(
        "at least once",
        "a tick has arrived once the sink asks for more after its last change, otherwise it comes again",
    )


class CommittedTickDelivery:
    """Delivery of committed ticks to a user's pull sink, one `Change` at a time. For one run.

    A tick is delivered when downstream asks again after its last change. Until then a checkpoint keeps the
    tick, and a run that resumes there repeats all of its changes. The last tick before a crash may therefore
    be repeated.
    """

    def __init__(self, sink_request: SinkRequest) -> None:
        self._sink_request = sink_request
        self._spool = None if sink_request.spool is None else Spool(sink_request, sink_request.spool)
        self._ready: deque[Any] = deque()
        self._tick = 0  # the tick whose changes are ready
        self._prepared: Rows = []

    @property
    def only_holds(self) -> bool:
        """Whether `prepare` cannot fail, as `Writer.only_holds`."""
        return self._spool is None

    def recover(self, tick: int) -> None:
        """Recover after `tick`, the last committed one, or 0 for a new run. Called once, first."""
        if self._spool is not None:
            self._spool.drop_others(tick)
            self._show(tick, self._spool.rows_of_tick(tick) or [])

    def transformer(self) -> PullTransformer:
        """Build a transformer from tick steps to changes, asking for a step once all are delivered."""
        return PullTransformer.of("changes", lambda _module, edge: _Changes(self, edge).read, batches=True)

    # -- for its module -------------------------------------------------------------------------

    def take(self, step: Prepare | Publish) -> None:
        if isinstance(step, Publish):
            self._show(step.tick, self._prepared)
            return
        if self._spool is not None:
            self._spool.keep(step.tick, step.rows)
        self._prepared = step.rows
        if step.publish:
            self._show(step.tick, step.rows)

    def _show(self, tick: int, rows: Rows) -> None:
        self._tick = tick
        self._prepared = []
        self._ready.extend(self._sink_request.present(rows))

    def drop_delivered(self) -> None:
        """Drop the delivered tick."""
        self._ready.clear()
        if self._spool is not None:
            self._spool.drop(self._tick)

    def some(self, most: int) -> list[Any]:
        """Return up to `most` of the next changes; empty once all are delivered."""
        ready = self._ready
        return [ready.popleft() for _ in range(min(most, len(ready)))]


class _Changes:
    def __init__(self, handover: CommittedTickDelivery, edge: PullEdge) -> None:
        self._handover = handover
        self._edge = edge
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._waits = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is None:
            self._asks.append((answer, most))
            self._pump()
            return
        self._asks.clear()
        if abort is True:
            self._handover.drop_delivered()  # downstream has enough
        self._edge(abort, answer)

    def _pump(self) -> None:
        asks = self._asks
        while asks and (changes := self._handover.some(asks[0][1])):
            asks.popleft()[0](None, changes)
        if asks and not self._waits:
            self._handover.drop_delivered()
            self._waits = True
            self._edge(None, self._got)

    def _got(self, end: End | None, step: Any = None, /) -> None:
        self._waits = False
        if end is not None:
            if self._asks:  # After a stop, the edge has answered them.
                self._asks.popleft()[0](end)
            return
        self._handover.take(step)
        if isinstance(step, Prepare) and not step.publish:
            self._waits = True
            self._edge(None, self._got)
        else:
            self._pump()
