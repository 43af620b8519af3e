"""`iter_values`, `aiter_values`: sources as Python iterators."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from headrace.pull.argument_checks import check_integer
from headrace.pull.compose import pull
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Sink, Source
from headrace.pull.pipeline_run import CONFIRM_WITHIN, Run
from headrace.pull.pipeline_runtime import Runtime
from headrace.pull.protocol import End


class IterationState:
    """Requests and answers of one iteration. Lists in `arrived` and open requests fill at most one window.

    woken: called when a list or the end arrives.
    """

    def __init__(self, name: str, batch: int) -> None:
        self.sink = Sink.of(name, self._open)
        self.arrived: deque[list[Any]] = deque()
        self.woken: Callable[[], object] | None = None
        self.over = False
        self._batch = batch
        self._under_way = 0
        self._module: Module | None = None

    def _open(self, module: Module, edge: Edge) -> None:
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
    source: Source,
    *,
    batch: int = 1,
    window: int | None = None,
    confirm_within: float | None = CONFIRM_WITHIN,
) -> Generator[Any]:
    """Iterate over the values of a source. It starts at the first `next`, and requests values on demand.

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
    source: Source, reading: IterationState, window: int | None, confirm_within: float | None
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
    source: Source,
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
    source: Source, reading: IterationState, window: int | None, confirm_within: float | None
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
