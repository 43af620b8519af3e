"""Sinks that fold a stream into one result: `collect`, `concat`, `last`, `reduce`, `find`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, AnyStr

from headrace.pull.argument_checks import AWAIT_BEFORE, synchronous_check
from headrace.pull.edge import Edge
from headrace.pull.errors import NoValue
from headrace.pull.io.octets import check_octets
from headrace.pull.module_context import Module
from headrace.pull.modules import Sink
from headrace.pull.protocol import End
from headrace.pull.sinks.read_loops import ReadLoop

Taking = tuple[Callable[[list[Any]], object], Callable[[], Any]]
"""Pair of functions: `take(values)` receives each batch in order, `result()` is called once at the end."""


def fresh_sink(name: str, begin: Callable[[Module], Taking], *, batch: int) -> Sink:
    """Create a sink with fresh state per run. If the stream fails, `Run.partial` has the partial result."""

    def open(module: Module, edge: Edge) -> None:
        take, result = begin(module)

        def over(end: End) -> None:
            if end is True:
                module.done(result())
            else:
                module.fail(end, result())

        ReadLoop(edge, take, over, batch=batch).start()

    return Sink.of(name, open)


def drop(_values: list[Any]) -> None:
    """Discard values."""


def no_result() -> None:
    """Return None, the result of sinks without one."""


def collect(*, batch: int = 1) -> Sink:
    """Collect all values in a list. If the stream fails, `Run.partial` has those before the error.

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


def concat(empty: AnyStr = "", *, batch: int = 1) -> Sink:
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


def last(*, default: Any = None, batch: int = 1) -> Sink:
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


def reduce(function: Callable[[Any, Any], Any], initial: Any = _NOTHING, *, batch: int = 1) -> Sink:
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

    def open(module: Module, edge: Edge) -> None:
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

    return Sink.of("reduce", open)


def find(test: Callable[[Any], object] = bool, *, default: Any = None, batch: int = 1) -> Sink:
    """Find the first value for which `test(value)` is true; `default` if there is none.

    Then it aborts upstream; the result is available once upstream has confirmed. An exception of the test
    fails upstream and the run.

    batch: number of values per request, and so of values that may be drawn beyond the one found.

    >>> from headrace.pull import pull, values
    >>> pull(values([1, 7, 9]), find(lambda value: value > 5)).run()
    7
    """
    checked = synchronous_check("find", test, fix=AWAIT_BEFORE)

    def open(module: Module, edge: Edge) -> None:
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

    return Sink.of("find", open)
