"""`paramap`: apply a plain function to each value, in threads or processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.pull.argument_checks import check_integer, refuse_async
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Transformer
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import Read
from headrace.pull.transformers.concurrent_calls import ConcurrentCalls, Done

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future


def paramap(
    function: Callable[[Any], Any],
    width: int,
    *,
    ordered: bool = True,
    executor: Executor | None = None,
) -> Transformer:
    """Apply a blocking `function(value)` to each value in a worker thread, `width` at once.

    executor: pool of the caller, for example of processes (the function and the values are then pickled),
              which is not shut down. By default, `width` threads are started at the first value.

    Asks, ends and errors are handled as by `async_map`. A running function cannot be cancelled: an abort is
    confirmed once it has returned; calls not yet started by the pool are cancelled. `width` has no default;
    without one, the original reads all of upstream at the first ask.

    >>> from headrace.pull import collect, pull, values
    >>> pull(values(["b", "a"]), paramap(str.upper, width=2), collect()).run()
    ['B', 'A']
    """
    check_integer("paramap", "width", width, least=1)
    refuse_async("paramap", function, fix="async_map(function, width) awaits it", passes_on=True)

    def open(module: Module, edge: Edge) -> Read:
        from concurrent.futures import ThreadPoolExecutor

        pool = executor or ThreadPoolExecutor(width, thread_name_prefix="paramap")
        if executor is None:
            module.cancel_at_end(_Shutdown(pool))

        def start(value: Any, done: Done) -> Cancellable:
            future = pool.submit(function, value)
            resume = module.from_thread()
            future.add_done_callback(lambda future: resume(_finish, future, done))
            return future

        return ConcurrentCalls(edge, start, width, ordered=ordered, cancel=True).read

    return Transformer.of("paramap", open, width=width)


@dataclass(frozen=True)
class _Shutdown:
    pool: Executor

    def cancel(self) -> None:
        self.pool.shutdown(wait=False)


def _finish(future: Future[Any], done: Done) -> None:
    if future.cancelled():
        done(None, None)
        return
    error = future.exception()
    if error is None:
        done(None, future.result())
    elif isinstance(error, Exception):
        done(error, None)
    else:
        raise error
