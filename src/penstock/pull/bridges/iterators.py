"""Sources as Python's iterators: `for value in iter_values(source)`, and the same with `async for`."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Generator
from typing import Any

from penstock.pull.bridges.reading import Reading
from penstock.pull.compose import pull
from penstock.pull.options import whole
from penstock.pull.pieces import Source
from penstock.pull.run import CONFIRM_WITHIN, Run
from penstock.pull.runtime import Runtime


def iter_values(
    source: Source,
    *,
    batch: int = 1,
    window: int | None = None,
    confirm_within: float | None = CONFIRM_WITHIN,
) -> Generator[Any]:
    """The values of a source, as a generator. It starts at the first `next`, and asks when one is wanted.

    batch:          values asked for by one request.
    window:         requests under way at once, those included whose values wait; None: as many as the
                    source can work on, which is one where it answers at once.
    confirm_within: see `Pipeline.run`.

    Ends as the stream does: an error is raised after the values before it. `close()`, and so leaving the
    loop early, aborts the source, waits until it has confirmed, and raises what closing failed with;
    with `contextlib.closing` that happens at a certain place. Modules that wait for something outside
    run in an event loop of its own, and only while a value is waited for. Raises what `Run.result` does.

    >>> from penstock.pull import count, map, pull
    >>> for square in iter_values(pull(count(), map(lambda n: n * n))):
    ...     if square > 20:
    ...         break
    >>> square
    25
    """
    whole("iter_values", "batch", batch, least=1)
    return _values(source, Reading("iter_values", batch), window, confirm_within)


def _values(
    source: Source, reading: Reading, window: int | None, confirm_within: float | None
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


def _work(run: Run, reading: Reading) -> None:
    """Have the event loop of the run work until something has arrived."""
    runtime = run.runtime
    if runtime.has_loop and not runtime.idle:
        arrival = runtime.loop.create_future()
        runtime.when_idle = reading.woken = lambda: arrival.done() or arrival.set_result(None)
        runtime.loop.run_until_complete(arrival)
    if runtime.idle and not (reading.arrived or reading.over):
        raise run.stuck()


def aiter_values(
    source: Source,
    *,
    batch: int = 1,
    window: int | None = None,
    confirm_within: float | None = CONFIRM_WITHIN,
) -> AsyncGenerator[Any]:
    """As `iter_values`, for `async for` in the event loop that is running.

    `aclose()`, or cancelling the task that waits for a value, aborts the source and waits until it has
    confirmed. A loop that is left early does not close an asynchronous generator by itself: `async with
    contextlib.aclosing(...)` does. Requests of the window go on while the task does something else.

    >>> import asyncio
    >>> from penstock.pull import values
    >>> async def main():
    ...     return [value async for value in aiter_values(values("ab"))]
    >>> asyncio.run(main())
    ['a', 'b']
    """
    whole("aiter_values", "batch", batch, least=1)
    return _values_awaited(source, Reading("aiter_values", batch), window, confirm_within)


async def _values_awaited(
    source: Source, reading: Reading, window: int | None, confirm_within: float | None
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
