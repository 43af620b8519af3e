"""Sinks that read everything for a side effect: `drain`, `log`, `on_end`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import IN_A_TASK, synchronous_check
from headrace.pull.edge import Edge
from headrace.pull.module_context import Module
from headrace.pull.modules import Sink, SinkPart
from headrace.pull.protocol import End
from headrace.pull.running_modules import AbortHandle
from headrace.pull.sinks.folds import Taking, drop, fresh_sink, no_result
from headrace.pull.sinks.read_loops import ReadLoop


def drain(function: Callable[[Any], object] | None = None, *, batch: int = 1) -> Drain:
    """Read everything, calling `function(value)` for each value in order. The result is None.

    If the function returns False, upstream is aborted as a normal end (the original gave its caller `true`
    instead). An exception fails upstream and the run. `drain(...).abort()` ends the sink from outside.

    batch: number of values per request; see `ReadLoop`.

    >>> from headrace.pull import pull, values
    >>> seen = []
    >>> pull(values("abc"), drain(seen.append)).run()
    >>> seen
    ['a', 'b', 'c']
    """
    handle = AbortHandle()
    checked = synchronous_check("drain", function, fix="for_each(function) awaits it")

    def open(module: Module, edge: Edge) -> None:
        def take(values: list[Any]) -> None:
            if function is None:
                return
            for value in values:
                returned = function(value)
                if returned is not None and returned is not False:
                    checked(returned)
                if reader.stopped:
                    return
                if returned is False:
                    reader.stop()
                    finish(True)
                    return

        def stop(cause: End) -> None:
            if not reader.stopped:
                reader.stop()
                module.enter(finish, cause)

        def finish(end: End) -> None:
            if end is True:
                module.done()
            else:
                module.fail(end)

        reader = ReadLoop(edge, take, finish, batch=batch)
        if handle.cause is not None:
            finish(handle.cause)
        else:
            handle.at_work.add(module, stop)
            reader.start()

    return Drain(SinkPart("drain", SourceLocation.of_caller(), open), handle=handle)


@dataclass(frozen=True, eq=False, slots=True)
class Drain(Sink):
    """Sink created by `drain`; `pull(transformer, drain())` contains it and stops with it."""

    handle: AbortHandle = field(kw_only=True)

    def abort(self, error: Exception | None = None) -> None:
        """Abort all runs of this sink, including later ones, or fail them with `error`.

        May be called at any time in the thread of the pipeline, even from the function itself. Calls after
        the first have no effect.
        """
        self.handle.abort(error)


def log(label: str = "", *, to: Callable[[str], object] = print, batch: int = 1) -> Sink:
    """Write each value as text: `to("label: value")`, the value as its `repr`. The result is None.

    to: function that writes a text, such as `print` or `logging.info`. An exception fails upstream and the
        run.
    batch: number of values per request; see `ReadLoop`.

    >>> from headrace.pull import pull, values
    >>> pull(values([1, "b"]), log("in")).run()
    in: 1
    in: 'b'
    """
    before = f"{label}: " if label else ""
    write = synchronous_check("log", to, fix="for_each() of a function that writes what it is given").calling(
        to
    )

    def begin(_module: Module) -> Taking:
        def take(values: list[Any]) -> None:
            for value in values:
                write(f"{before}{value!r}")

        return take, no_result

    return fresh_sink("log", begin, batch=batch)


def on_end(function: Callable[[Exception | None], object], *, batch: int = 1) -> Sink:
    """Read everything, then call `function(error)` once. The result is None.

    error: error that the stream failed with; None if it ended, or the run was stopped. An exception of the
           function fails the run, or is attached to `error`.
    batch: number of values per request; see `ReadLoop`.

    >>> from headrace.pull import pull, values
    >>> pull(values([1, 2]), on_end(lambda error: print("over:", error))).run()
    over: None
    """
    call = synchronous_check("on_end", function, fix=IN_A_TASK).calling(function)

    def begin(module: Module) -> Taking:
        def close(error: Exception | None, closed: Callable[[], object]) -> None:
            call(error)
            closed()

        module.closing(close)
        return drop, no_result

    return fresh_sink("on_end", begin, batch=batch)
