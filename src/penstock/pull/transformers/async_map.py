"""`async_map`: apply a coroutine function to each value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from penstock.errors import CallCancelled
from penstock.pull.argument_checks import whole
from penstock.pull.edge import Edge
from penstock.pull.module_context import Module
from penstock.pull.modules import Transformer
from penstock.pull.pipeline_runtime import Cancellable
from penstock.pull.protocol import Read
from penstock.pull.transformers.concurrent_calls import Calls, Done


def async_map(
    function: Callable[[Any], Awaitable[Any]], width: int = 1, *, ordered: bool = True, cancel: bool = False
) -> Transformer:
    """Apply `await function(value)` to each value, `width` at once.

    ordered: results in the order of the values; otherwise in the order in which they are ready.
    cancel:  calls that run when the stream stops are cancelled; by default they are awaited, and their
             results dropped. Either way an abort is confirmed when no call runs any more.

    Each ask asks upstream once and at once. Sinks keep as many asks under way as there are places in
    the pipeline: a chain of `k` works on `k` values at the same time. Done, and errors of upstream,
    follow the results of all values before them. What the function raises fails the source
    with it when the results before it were answered, and is answered when that and the calls
    that still run are over; what such a call raises is attached. What a function raises while an
    abort waits for it is dropped like its result: downstream wants that value no more.

    >>> from penstock.pull import collect, pull, values
    >>> async def double(x):
    ...     return 2 * x
    >>> pull(values([1, 2, 3]), async_map(double, width=2), collect()).run()
    [2, 4, 6]
    """
    whole("async_map", "width", width, least=1)

    def open(module: Module, edge: Edge) -> Read:
        start = partial(_Call, module, function)
        return Calls(edge, start, width, ordered=ordered, cancel=cancel).read

    return Transformer.of("async_map", open, width=width)


class _Call:
    """Task that reports its end even after cancellation, once its cleanup is done."""

    def __init__(
        self, module: Module, function: Callable[[Any], Awaitable[Any]], value: Any, done: Done
    ) -> None:
        self._module = module
        self._function = function
        self._value = value
        self._cancelled = False
        self._task: Cancellable | None = None
        module.spawn(self._run(), done)

    async def _run(self) -> Any:
        import asyncio

        if self._cancelled:
            return None
        self._task = asyncio.current_task()
        try:
            return await self._function(self._value)
        except asyncio.CancelledError:
            if self._cancelled:
                return None
            raise CallCancelled(
                f"a call of {self._module.name!r} was cancelled",
                where=[self._module.location],
                why="Not the pipeline has cancelled it, but the function itself, or what it awaits.",
                fix="catch asyncio.CancelledError in the function; to stop the pipeline, abort it",
            ) from None

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
