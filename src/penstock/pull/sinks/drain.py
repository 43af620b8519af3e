"""Sinks that read everything for the sake of a function: drain, log, on_end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock.errors import SourceLocation
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Sink, SinkPart
from penstock.pull.protocol import End
from penstock.pull.sinks.folds import Taking, drop, nothing, whole
from penstock.pull.sinks.reading import Asking
from penstock.pull.synchronous import IN_A_TASK, Synchronous, synchronous


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
    aborts = Aborts()
    checked = synchronous("drain", function, fix="for_each(function) awaits it")

    def open(module: Module, edge: Edge) -> None:
        _Draining(module, edge, function, batch, aborts, checked).start()

    return Drain(SinkPart("drain", SourceLocation.of_caller(), open), aborts=aborts)


@dataclass(eq=False)
class Aborts:
    """What `abort` has said, and to whom. An abort is for good: runs that begin later end at once."""

    cause: End | None = None
    at_work: set[_Draining] = field(default_factory=set["_Draining"])

    def abort(self, cause: End) -> None:
        if self.cause is None:
            self.cause = cause
            for draining in tuple(self.at_work):
                draining.abort(cause)


@dataclass(frozen=True, eq=False, slots=True)
class Drain(Sink):
    """The sink that `drain` makes; `pull(transformer, drain())` is composed of it and stops with it."""

    aborts: Aborts = field(kw_only=True)

    def abort(self, error: Exception | None = None) -> None:
        """End all runs of this sink, those that begin later too: aborted, or failed with `error`.

        May be called at any time in the thread of the pipeline, also within the function;
        upstream hears of it once. Calls after the first do nothing.
        """
        self.aborts.abort(error if error is not None else True)


class _Draining:
    """One run of a `drain`."""

    def __init__(
        self,
        module: Module,
        edge: Edge,
        function: Callable[[Any], object] | None,
        batch: int,
        aborts: Aborts,
        checked: Synchronous,
    ) -> None:
        self._module = module
        self._function = function
        self._aborts = aborts
        self._checked = checked
        self._asking = Asking(edge, self._take if function is not None else drop, self._over, batch=batch)
        self._aborted = False

    def start(self) -> None:
        if self._aborts.cause is not None:
            self._finish(self._aborts.cause)
            return
        self._aborts.at_work.add(self)
        self._module.hold(self)
        self._asking.start()

    def abort(self, cause: End) -> None:
        if not self._aborted:
            self._aborted = True
            self._asking.stop()
            self._module.enter(self._finish, cause)

    def _take(self, values: list[Any]) -> None:
        function = self._function
        assert function is not None
        for value in values:
            returned = function(value)
            enough = returned is False
            if returned is not None and not enough:
                self._checked(returned)
            if self._aborted:
                return
            if enough:
                self._aborted = True
                self._asking.stop()
                self._finish(True)
                return

    def _over(self, end: End) -> None:
        self._aborted = True
        self._finish(end)

    def _finish(self, end: End) -> None:
        if end is True:
            self._module.done()
        else:
            self._module.fail(end)

    def cancel(self) -> None:
        """The sink has ended, or its run was given up."""
        self._aborts.at_work.discard(self)


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
