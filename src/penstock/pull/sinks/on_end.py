"""on_end: learn how a stream ended."""

from __future__ import annotations

from collections.abc import Callable

from penstock.pull.module import Module
from penstock.pull.pieces import Sink
from penstock.pull.sinks.whole import Taking, drop, nothing, whole
from penstock.pull.synchronous import IN_A_TASK, synchronous


def on_end(function: Callable[[Exception | None], object], *, batch: int = 1) -> Sink:
    """Read everything; when the stream has ended, `function(error)` is called once. The result is None.

    error: what the stream failed with; None where it ended, or the run was stopped. What the
           function raises is the result, or a note of `error`.
    batch: values asked for by one request; see `Asking`.

    >>> from penstock.pull import pull, values
    >>> pull(values([1, 2]), on_end(lambda error: print("over:", error))).run()
    over: None
    """
    call = synchronous("on_end", function, fix=IN_A_TASK).calling(function)

    def begin(module: Module) -> Taking:
        def close(error: Exception | None, closed: Callable[[], object]) -> None:
            call(error)
            closed()

        module.closing(close)
        return drop, nothing

    return whole("on_end", begin, batch=batch)
