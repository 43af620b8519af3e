"""`async_map`: apply a coroutine function to each value."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from headrace.pull.argument_checks import check_integer
from headrace.pull.edge import Edge
from headrace.pull.errors import CallCancelled
from headrace.pull.module_context import Module
from headrace.pull.modules import Transformer
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import Read
from headrace.pull.transformers.concurrent_calls import ConcurrentCalls, Done


def async_map(
    function: Callable[[Any], Awaitable[Any]], width: int = 1, *, ordered: bool = True, cancel: bool = False
) -> Transformer:
    """Apply `await function(value)` to each value, `width` at once.

    ordered: emit results in the order of the values; otherwise in order of completion.
    cancel:  cancel running calls when the stream stops; by default they are awaited, and their results
             dropped. Either way, an abort is confirmed once no call is running any more.

    Each ask immediately asks upstream once. Sinks keep as many asks in flight as the pipeline can work on: a
    chain of `k` works on `k` values at the same time. Done and errors of upstream follow the results of all
    values before them. An exception of the function fails upstream once the results before it are answered,
    and is answered when upstream has confirmed and the running calls are over, with their exceptions
    attached. An exception of a call that an abort waits for is dropped like a result, since downstream no
    longer wants that value.

    >>> from headrace.pull import collect, pull, values
    >>> async def double(x):
    ...     return 2 * x
    >>> pull(values([1, 2, 3]), async_map(double, width=2), collect()).run()
    [2, 4, 6]
    """
    check_integer("async_map", "width", width, least=1)

    def open(module: Module, edge: Edge) -> Read:
        start = partial(_Call, module, function)
        return ConcurrentCalls(edge, start, width, ordered=ordered, cancel=cancel).read

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
                why="The function, or something it awaits, was cancelled; the pipeline did not cancel it.",
                fix="catch asyncio.CancelledError in the function; to stop the pipeline, abort it",
            ) from None

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()
