"""Bridges between pull-streams and Python: iterators, and queues of threads and of asyncio tasks."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import BadOption, SourceLocation
from headrace.pull.argument_checks import check_integer
from headrace.pull.compose import pull
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.modules import PullSink, PullSource
from headrace.pull.pipeline_run import CONFIRM_WITHIN, Run
from headrace.pull.pipeline_runtime import Runtime
from headrace.pull.protocol import AnswerTo, BatchRead, End

if TYPE_CHECKING:
    import asyncio


class IterationState:
    """Requests and answers of one iteration. Lists in `arrived` plus open requests fill at most one window.

    woken: called when a list or the end arrives.
    """

    def __init__(self, name: str, batch: int) -> None:
        self.sink = PullSink.of(name, self._open)
        self.arrived: deque[list[Any]] = deque()
        self.woken: Callable[[], object] | None = None
        self.over = False
        self._batch = batch
        self._under_way = 0
        self._module: Module | None = None

    def _open(self, module: Module, edge: PullEdge) -> None:
        self._module = module
        self._edge = edge
        if self.over:
            module.done()
        else:
            self._ask()

    def fill(self) -> None:
        """Make as many requests as the window allows."""
        if self._module is not None:
            self._module.enter(self._ask)

    def _ask(self) -> None:
        while not self.over and self._under_way + len(self.arrived) < self._edge.window:
            self._under_way += 1
            self._edge(None, self._got, self._batch)

    def _got(self, end: End | None, values: Any = None, /) -> None:
        self._under_way -= 1
        if end is None:
            self.arrived.append(values)
        elif not self.over:
            self._finish(end)
        woken, self.woken = self.woken, None
        if woken is not None:
            woken()

    def _finish(self, end: End) -> None:
        assert self._module is not None
        self.over = True
        if end is True:
            self._module.done()
        else:
            self._module.fail(end)

    def stop(self) -> None:
        """Abort the stream unless it has ended."""
        if not self.over:
            self.over = True
            if self._module is not None:
                self._module.enter(self._module.done)


def iter_values(
    source: PullSource,
    *,
    batch: int = 1,
    window: int | None = None,
    confirm_within: float | None = CONFIRM_WITHIN,
) -> Generator[Any]:
    """Iterate over the values of a source. Starts at the first `next`, and requests values on demand.

    batch:          number of values per request.
    window:         limit on requests in flight, including those whose values wait; None: as many as the
                    source can work on, which is one if it answers immediately.
    confirm_within: see `Pipeline.run`.

    The iteration ends as the stream does: an error is raised after the values before it. `close()`, and so
    leaving the loop early, aborts the source, waits until it has confirmed, and raises any error of closing;
    use `contextlib.closing` to make this happen at a definite point. Modules that wait for outside events run
    in an event loop of its own, and only while a value is awaited. Raises as `Run.result` does.

    >>> from headrace.pull import count, map, pull
    >>> for square in iter_values(pull(count(), map(lambda n: n * n))):
    ...     if square > 20:
    ...         break
    >>> square
    25
    """
    check_integer("iter_values", "batch", batch, least=1)
    return _values(source, IterationState("iter_values", batch), window, confirm_within)


def _values(
    source: PullSource, reading: IterationState, window: int | None, confirm_within: float | None
) -> Generator[Any]:
    run = pull(source, reading.sink).start(Runtime(), window=window, confirm_within=confirm_within)
    try:
        while True:
            reading.fill()
            while not (reading.arrived or reading.over):
                _work(run, reading)
            if not reading.arrived:
                break
            yield from reading.arrived.popleft()
    finally:
        reading.stop()
        run.wait()


def _work(run: Run, reading: IterationState) -> None:
    """Run the event loop until something has arrived."""
    runtime = run.runtime
    if runtime.has_loop and not runtime.idle:
        arrival = runtime.loop.create_future()
        runtime.when_idle = reading.woken = lambda: arrival.done() or arrival.set_result(None)
        runtime.loop.run_until_complete(arrival)
    if runtime.idle and not (reading.arrived or reading.over):
        raise run.unfinished_error()


def aiter_values(
    source: PullSource,
    *,
    batch: int = 1,
    window: int | None = None,
    confirm_within: float | None = CONFIRM_WITHIN,
) -> AsyncGenerator[Any]:
    """Iterate asynchronously over the values of a source in the running event loop, like `iter_values`.

    `aclose()`, or cancelling the task that waits for a value, aborts the source and waits until it has
    confirmed. Leaving a loop early does not close an asynchronous generator; use `async with
    contextlib.aclosing(...)`. Requests of the window proceed while the task does something else.

    >>> import asyncio
    >>> from headrace.pull import values
    >>> async def main():
    ...     return [value async for value in aiter_values(values("ab"))]
    >>> asyncio.run(main())
    ['a', 'b']
    """
    check_integer("aiter_values", "batch", batch, least=1)
    return _values_awaited(source, IterationState("aiter_values", batch), window, confirm_within)


async def _values_awaited(
    source: PullSource, reading: IterationState, window: int | None, confirm_within: float | None
) -> AsyncGenerator[Any]:
    import asyncio

    run = pull(source, reading.sink).start(window=window, confirm_within=confirm_within)
    try:
        while True:
            reading.fill()
            if not (reading.arrived or reading.over):
                arrival = asyncio.Event()
                reading.woken = arrival.set
                await arrival.wait()
            if not reading.arrived:
                break
            for value in reading.arrived.popleft():
                yield value
    finally:
        reading.stop()
        await run


ForThreads = queue.Queue[Any]


class QueueAdapter(Protocol):
    """Interface common to thread queues and asyncio queues."""

    def take(self) -> list[Any]:
        """Return the next item, if there is one."""
        ...

    async def wait_filled(self) -> list[Any]:
        """Wait until an item is available, and return it if waiting took it."""
        ...

    def put(self, item: Any) -> bool:
        """Put a value if there is room. Returns whether there was."""
        ...

    async def put_later(self, item: Any) -> None:
        """Wait for room, then put the value."""
        ...


def queue_adapter(constructor: str, found: object) -> QueueAdapter:
    """Wrap a queue. Raises `BadOption` for any other object."""
    if isinstance(found, queue.Queue):
        return _OfThreads(found)  # pyright: ignore[reportUnknownArgumentType]
    import asyncio

    if isinstance(found, asyncio.Queue):
        return _OfTasks(found)  # pyright: ignore[reportUnknownArgumentType]
    raise BadOption(
        f"{constructor}() cannot work with a {type(found).__name__}",
        where=[SourceLocation.of_caller()],
        why="It has to wait for the queue without blocking the pipeline.",
        fix="give a queue.Queue (also LifoQueue, PriorityQueue) or an asyncio.Queue",
        constructor=constructor,
        option="queue",
    )


class _OfTasks:
    """Adapter of an `asyncio.Queue`, used only in its event loop's thread."""

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    def take(self) -> list[Any]:
        return [] if self._queue.empty() else [self._taken(self._queue.get_nowait())]

    async def wait_filled(self) -> list[Any]:
        return [self._taken(await self._queue.get())]

    def _taken(self, item: Any) -> Any:
        self._queue.task_done()
        return item

    def put(self, item: Any) -> bool:
        if self._queue.full():
            return False
        self._queue.put_nowait(item)
        return True

    async def put_later(self, item: Any) -> None:
        await self._queue.put(item)


class _OfThreads:
    """Adapter of a `queue.Queue`, which other threads access at any time. Waiting takes no item."""

    def __init__(self, queue: ForThreads) -> None:
        self._queue = queue

    def take(self) -> list[Any]:
        try:
            item = self._queue.get_nowait()
        except queue.Empty:
            return []
        self._queue.task_done()
        return [item]

    async def wait_filled(self) -> list[Any]:
        await _until(self._queue.not_empty, lambda: len(self._queue.queue) > 0)
        return []

    def put(self, item: Any) -> bool:
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            return False
        return True

    async def put_later(self, item: Any) -> None:
        while not self.put(item):
            await _until(self._queue.not_full, lambda: len(self._queue.queue) < self._queue.maxsize)


async def _until(condition: threading.Condition, holds: Callable[[], bool]) -> None:
    """Wait for a condition in a thread.

    On cancellation the thread ends and notifies the other waiters again, since it may have been woken in
    their place.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    reached: asyncio.Future[None] = loop.create_future()
    given_up = False

    def settle() -> None:
        if not reached.done():
            reached.set_result(None)

    def wait() -> None:
        with condition:
            condition.wait_for(lambda: given_up or holds())
            if not given_up:
                loop.call_soon_threadsafe(settle)

    threading.Thread(target=wait, name="headrace-queue", daemon=True).start()
    try:
        await reached
    except asyncio.CancelledError:
        with condition:
            given_up = True
            condition.notify_all()
        raise


_NONE = object()


def from_queue(queue: ForThreads | asyncio.Queue[Any], *, end: Any = _NONE) -> PullSource:
    """Read the items of a `queue.Queue` or an `asyncio.Queue`, in the queue's order.

    end: item that marks the end, compared by `is`. Without it, the stream lasts until it is stopped.

    An item is taken when it is asked for, and then counts as done (`task_done`). While the queue is empty,
    the source waits in the event loop, or for a `queue.Queue` in a thread of its own. A stop is confirmed
    immediately and takes no more items; an item just taken from an `asyncio.Queue` may be lost.

    >>> import queue
    >>> from headrace.pull import collect, pull
    >>> letters = queue.Queue()
    >>> for letter in ["a", "b", None]:
    ...     letters.put(letter)
    >>> pull(from_queue(letters, end=None), collect()).run()
    ['a', 'b']
    """
    items = queue_adapter("from_queue", queue)

    def open(module: Module) -> BatchRead:
        return _Taking(module, items, end).read

    return PullSource.of("from_queue", open, batches=True)


class _Taking:
    def __init__(self, module: Module, items: QueueAdapter, last: Any) -> None:
        self._module = module
        self._items = items
        self._last = last
        self._over = False
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._taken: list[Any] = []  # by waiting
        self._waits = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            answer(abort)  # the task that waits is cancelled when the stream has ended
        else:
            self._asks.append((answer, most))
            self._give()

    def _give(self) -> None:
        while self._asks and not self._waits:
            answer, most = self._asks[0]
            batch = self._take(most)
            if batch:
                self._asks.popleft()
                answer(None, batch)
            elif self._over:
                self._asks.popleft()
                answer(True)
            else:
                self._waits = True
                self._module.spawn(self._items.wait_filled(), self._filled)

    def _take(self, most: int) -> list[Any]:
        batch: list[Any] = []
        while len(batch) < most and not self._over:
            found, self._taken = self._taken or self._items.take(), []
            if not found:
                break
            if found[0] is self._last:
                self._over = True
            else:
                batch += found
        return batch

    def _filled(self, error: Exception | None, taken: list[Any]) -> None:
        self._waits = False
        if error is not None:
            raise error
        self._taken = taken
        self._give()


def to_queue(queue: ForThreads | asyncio.Queue[Any], *, end: Any = _NONE) -> PullSink:
    """Put the values into a `queue.Queue` or an `asyncio.Queue`; the result is the number of values.

    end: item to put after the last value, even if the stream failed; by default none.

    While the queue is full, the sink waits for room without asking for more, so a bounded queue slows down
    the source. If the stream fails, `Run.partial` is the number of values put.

    >>> import queue
    >>> from headrace.pull import pull, values
    >>> letters = queue.Queue()
    >>> pull(values("ab"), to_queue(letters, end=None)).run()
    2
    >>> list(iter(letters.get, None))
    ['a', 'b']
    """
    items = queue_adapter("to_queue", queue)
    return PullSink.of("to_queue", lambda module, edge: _Putting(module, edge, items, end).ask())


class _Putting:
    """State of the sink. Waiting values and open requests together fill at most one window."""

    def __init__(self, module: Module, edge: PullEdge, items: QueueAdapter, last: Any) -> None:
        self._module = module
        self._edge = edge
        self._items = items
        self._last = last
        self._held: deque[Any] = deque()
        self._under_way = 0
        self._waits = False
        self._put = 0
        self._end: End | None = None

    def ask(self) -> None:
        while self._end is None and self._under_way + len(self._held) < self._edge.window:
            self._under_way += 1
            self._edge(None, self._got)

    def _got(self, end: End | None, value: Any = None, /) -> None:
        self._under_way -= 1
        if end is None:
            self._held.append(value)
        elif self._end is None:
            self._end = end
            if self._last is not _NONE:
                self._put -= 1
                self._held.append(self._last)
        self._go_on()

    def _go_on(self) -> None:
        while self._held and not self._waits:
            if self._items.put(self._held[0]):
                self._done()
            else:
                self._waits = True
                self._module.spawn(self._items.put_later(self._held[0]), self._made_room)
        if self._end is None:
            self.ask()
        elif not self._held:
            self._finish(self._end)

    def _done(self) -> None:
        self._held.popleft()
        self._put += 1

    def _made_room(self, error: Exception | None, _result: None) -> None:
        self._waits = False
        if error is not None:
            raise error
        self._done()
        self._go_on()

    def _finish(self, end: End) -> None:
        if end is True:
            self._module.done(self._put)
        else:
            self._module.fail(end, self._put)
