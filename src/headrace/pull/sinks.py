"""Sinks: read loops, sinks that read everything for a side effect, and folds into one result."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, AnyStr

from headrace.errors import SourceLocation
from headrace.pull.argument_checks import AWAIT_BEFORE, IN_A_TASK, synchronous_check
from headrace.pull.edge import PullEdge
from headrace.pull.errors import NoValue
from headrace.pull.io.lines import check_octets
from headrace.pull.module_context import AbortHandle, Module
from headrace.pull.modules import PullSink, SinkPart
from headrace.pull.protocol import End


class ReadLoop:
    """Loop that reads an edge until it ends or `stop` is called, and passes on its values in order.

    take: called with each list of 1 to `batch` values. over: called once, with the end.
    batch: number of values per request. More than one is faster, but all modules upstream work that many
           values ahead of the sink.
    """

    def __init__(
        self,
        edge: PullEdge,
        take: Callable[[list[Any]], object],
        over: Callable[[End], object],
        *,
        batch: int = 1,
    ) -> None:
        self._edge = edge
        self._take = take
        self._over = over
        self._batch = batch
        self.stopped = False

    def start(self) -> None:
        """Make the first requests."""
        for _ in range(self._edge.window):
            self._ask()

    def stop(self) -> None:
        """Make no further requests, and pass on no further values."""
        self.stopped = True

    def _ask(self) -> None:
        self._edge(None, self._got, self._batch)

    def _got(self, end: End | None, values: Any = None, /) -> None:
        if self.stopped:
            return
        if end is not None:
            self.stopped = True
            self._over(end)
            return
        self._take(values)
        if not self.stopped:
            self._edge(None, self._got, self._batch)


class WorkerLoop:
    """Loop that reads an edge and processes up to `width` values at once, started in order.

    begin: `begin(value, finished)` starts processing, and arranges for a call of `finished()`.
    over:  called once: with done when all work is finished, or immediately with an error; values waiting to
           be processed are then dropped.

    If the edge is stopped by someone else (when the run is stopped), the loop does nothing any more.

    The total number of values requested, waiting and being processed is limited to `width`, or to the number
    of requests that keeps all modules upstream busy, whichever is greater.
    """

    def __init__(
        self,
        edge: PullEdge,
        begin: Callable[[Any, Callable[[], None]], object],
        over: Callable[[End], object],
        *,
        width: int = 1,
    ) -> None:
        self._edge = edge
        self._begin = begin
        self._over = over
        self._width = width
        self._waiting: deque[Any] = deque()
        self._running = 0
        self._ended = False
        self._stopped = False
        self._beginning = False

    def start(self) -> None:
        """Make the first requests."""
        for _ in range(max(self._width, self._edge.window)):
            self._edge(None, self._got)

    def stop(self) -> None:
        """Make no further requests, and start no further work."""
        self._stopped = True
        self._waiting.clear()

    def _got(self, end: End | None, value: Any = None, /) -> None:
        if self._stopped or self._ended or self._edge.stopped:
            return
        if end is None:
            self._waiting.append(value)
        elif isinstance(end, Exception):
            self.stop()
            self._over(end)
        else:
            self._ended = True
        self._go_on()

    def _finished(self) -> None:
        self._running -= 1
        if not (self._stopped or self._ended or self._edge.stopped):
            self._edge(None, self._got)
        self._go_on()

    def _go_on(self) -> None:
        if self._beginning:
            return  # work that finished synchronously: the loop below continues with the next value
        self._beginning = True
        try:
            while self._waiting and self._running < self._width and not self._edge.stopped:
                self._running += 1
                self._begin(self._waiting.popleft(), self._finished)
        finally:
            self._beginning = False
        if self._ended and not (self._stopped or self._waiting or self._running or self._edge.stopped):
            self._stopped = True
            self._over(True)


Taking = tuple[Callable[[list[Any]], object], Callable[[], Any]]
"""Pair of functions: `take(values)` receives each batch in order, `result()` is called once at the end."""


def fresh_sink(name: str, begin: Callable[[Module], Taking], *, batch: int) -> PullSink:
    """Create a sink with fresh state per run. If the stream fails, `Run.partial` has the partial result."""

    def open(module: Module, edge: PullEdge) -> None:
        take, result = begin(module)

        def over(end: End) -> None:
            if end is True:
                module.done(result())
            else:
                module.fail(end, result())

        ReadLoop(edge, take, over, batch=batch).start()

    return PullSink.of(name, open)


def drop(_values: list[Any]) -> None:
    """Discard values."""


def no_result() -> None:
    """Return None, the result of sinks without one."""


def collect(*, batch: int = 1) -> PullSink:
    """Collect all values in a list. If the stream fails, `Run.partial` has the values before the error.

    All values are held in memory, unlike with `to_file` and `for_each`.

    batch: number of values per request; see `ReadLoop`.

    >>> from headrace.pull import pull, values
    >>> pull(values("abc"), collect()).run()
    ['a', 'b', 'c']
    """

    def begin(_module: Module) -> Taking:
        found: list[Any] = []
        return found.extend, lambda: found

    return fresh_sink("collect", begin, batch=batch)


def concat(empty: AnyStr = "", *, batch: int = 1) -> PullSink:
    """Concatenate all values to one text, converting other types by `str`. An empty stream gives "".

    empty: `concat(b"")` joins bytes, and accepts nothing else (`WrongValue`).
    batch: number of values per request; see `ReadLoop`.

    If the stream fails, `Run.partial` has the text before the error.

    >>> from headrace.pull import pull, values
    >>> pull(values(["a", 1, "b"]), concat()).run()
    'a1b'
    >>> pull(values([b"a", b"b"]), concat(b"")).run()
    b'ab'
    """

    def begin(module: Module) -> Taking:
        found: list[Any] = []

        def take(values: list[Any]) -> None:
            if isinstance(empty, bytes):
                found.extend(check_octets(module, value) for value in values)
            else:
                found.extend(str(value) for value in values)

        return take, lambda: empty.join(found)

    return fresh_sink("concat", begin, batch=batch)


def last(*, default: Any = None, batch: int = 1) -> PullSink:
    """Keep the last value; `default` for an empty stream. If the stream fails, `Run.partial` has it.

    batch: number of values per request; see `ReadLoop`.

    >>> from headrace.pull import pull, values
    >>> pull(values([1, 2, 3]), last()).run()
    3
    """

    def begin(_module: Module) -> Taking:
        found = default

        def take(values: list[Any]) -> None:
            nonlocal found
            found = values[-1]

        return take, lambda: found

    return fresh_sink("last", begin, batch=batch)


_NOTHING: Any = object()


def reduce(function: Callable[[Any, Any], Any], initial: Any = _NOTHING, *, batch: int = 1) -> PullSink:
    """Fold the values in order by `function(so_far, value)`.

    It starts with `initial`, or with the first value. Without either (an empty stream), the run fails with
    `NoValue` (the original had no result at all). If the stream fails, `Run.partial` has the result up to
    then. An exception of the function fails upstream and the run.

    batch: number of values per request; see `ReadLoop`.

    >>> from headrace.pull import pull, values
    >>> pull(values([1, 2, 3]), reduce(lambda total, value: total + value, 10)).run()
    16
    """
    checked = synchronous_check("reduce", function, fix=AWAIT_BEFORE)

    def open(module: Module, edge: PullEdge) -> None:
        so_far = initial

        def take(values: list[Any]) -> None:
            nonlocal so_far
            for value in values:
                so_far = value if so_far is _NOTHING else function(so_far, value)
            checked(so_far)

        def over(end: End) -> None:
            if end is not True:
                module.fail(end, None if so_far is _NOTHING else so_far)
            elif so_far is _NOTHING:
                raise NoValue(
                    "reduce() of an empty stream",
                    where=[module.location],
                    why="The stream has no first value, and no initial value was given.",
                    fix="pass an initial value: reduce(function, initial)",
                )
            else:
                module.done(so_far)

        ReadLoop(edge, take, over, batch=batch).start()

    return PullSink.of("reduce", open)


def find(test: Callable[[Any], object] = bool, *, default: Any = None, batch: int = 1) -> PullSink:
    """Find the first value for which `test(value)` is true; `default` if there is none.

    Then it aborts upstream; the result is available once upstream has confirmed. An exception of the test
    fails upstream and the run.

    batch: number of values per request, and so of values that may be drawn beyond the one found.

    >>> from headrace.pull import pull, values
    >>> pull(values([1, 7, 9]), find(lambda value: value > 5)).run()
    7
    """
    checked = synchronous_check("find", test, fix=AWAIT_BEFORE)

    def open(module: Module, edge: PullEdge) -> None:
        def take(values: list[Any]) -> None:
            for value in values:
                if checked(test(value)):
                    asking.stop()
                    module.done(value)
                    return

        def over(end: End) -> None:
            if end is True:
                module.done(default)
            else:
                module.fail(end)

        asking = ReadLoop(edge, take, over, batch=batch)
        asking.start()

    return PullSink.of("find", open)


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

    def open(module: Module, edge: PullEdge) -> None:
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
class Drain(PullSink):
    """Sink created by `drain`; `pull(transformer, drain())` contains it and stops with it."""

    handle: AbortHandle = field(kw_only=True)

    def abort(self, error: Exception | None = None) -> None:
        """Abort all runs of this sink, including later ones, or fail them with `error`.

        May be called at any time in the thread of the pipeline, even from the function itself. Calls after
        the first have no effect.
        """
        self.handle.abort(error)


def log(label: str = "", *, to: Callable[[str], object] = print, batch: int = 1) -> PullSink:
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


def on_end(function: Callable[[Exception | None], object], *, batch: int = 1) -> PullSink:
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
