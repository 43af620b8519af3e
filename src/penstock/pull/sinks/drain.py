"""Sinks that read everything for the sake of a function: drain, log, on_end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import SourceLocation
from penstock.pull.edge import Edge
from penstock.pull.handles import AbortHandle
from penstock.pull.module import Module
from penstock.pull.pieces import Sink, SinkPart
from penstock.pull.protocol import End
from penstock.pull.sinks.folds import Taking, drop, nothing, whole
from penstock.pull.sinks.reading import Asking
from penstock.pull.synchronous import IN_A_TASK, synchronous


def drain(function: Callable[[Any], object] | None = None, *, batch: int = 1) -> Drain:
    """Read everything; `function(value)` is called with each value, in order. The result is None.

    Where it returns False, no further value is wanted: upstream is aborted, and that is a normal end
    (the original gave its caller `true` instead). What it raises fails upstream and is the result.
    `drain(...).abort()` ends it from outside.

    batch: values asked for by one request; see `Asking`.

    >>> from penstock.pull import pull, values
    >>> seen = []
    >>> pull(values("abc"), drain(seen.append)).run()
    >>> seen
    ['a', 'b', 'c']
    """
    handle = AbortHandle()
    checked = synchronous("drain", function, fix="for_each(function) awaits it")

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

        reader = Asking(edge, take, finish, batch=batch)
        if handle.cause is not None:
            finish(handle.cause)
        else:
            handle.at_work.add(module, stop)
            reader.start()

    return Drain(SinkPart("drain", SourceLocation.of_caller(), open), handle=handle)


@dataclass(frozen=True, eq=False, slots=True)
class Drain(Sink):
    """The sink that `drain` makes; `pull(transformer, drain())` is composed of it and stops with it."""

    handle: AbortHandle = field(kw_only=True)

    def abort(self, error: Exception | None = None) -> None:
        """End all runs of this sink, those that begin later too: aborted, or failed with `error`.

        May be called at any time in the thread of the pipeline, also within the function;
        upstream hears of it once. Calls after the first do nothing.
        """
        self.handle.abort(error)


def log(label: str = "", *, to: Callable[[str], object] = print, batch: int = 1) -> Sink:
    """Write each value as one text: `to("label: value")`, the value as `repr` shows it. The result is None.

    to: what writes a text, as `print` or `logging.info`. What it raises fails upstream and is the result.
    batch: values asked for by one request; see `Asking`.

    >>> from penstock.pull import pull, values
    >>> pull(values([1, "b"]), log("in")).run()
    in: 1
    in: 'b'
    """
    before = f"{label}: " if label else ""
    write = synchronous("log", to, fix="for_each() of a function that writes what it is given").calling(to)

    def begin(_module: Module) -> Taking:
        def take(values: list[Any]) -> None:
            for value in values:
                write(f"{before}{value!r}")

        return take, nothing

    return whole("log", begin, batch=batch)


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
