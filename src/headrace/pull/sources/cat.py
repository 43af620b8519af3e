"""`cat`: concatenate sources."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from headrace.pull.compose import describe
from headrace.pull.edge import Edge
from headrace.pull.errors import NotComposable
from headrace.pull.module_context import Module
from headrace.pull.modules import AnyModule, Source
from headrace.pull.protocol import AnswerTo, End
from headrace.pull.sources.iterator_reads import close_generator, iteration_starter


def cat(sources: Iterable[Source | None], *, width: int = 0) -> Source:
    """Concatenate the values of several sources; None is skipped.

    sources: a collection, or an iterable that creates them one by one, such as a generator. The next source
             is drawn and opened when the previous one is done and a value is asked for.
    width:   number of requests to keep in flight, if the sources work on several at once.

    Done follows the last source. The first error ends the stream. A stop goes to the open source, then a
    generator of sources is closed, then the stop is confirmed; unopened sources are not affected.

    >>> from headrace.pull import collect, pull, values
    >>> pull(cat([values([1, 2]), None, values([3])]), collect()).run()
    [1, 2, 3]
    """
    begin = iteration_starter(sources, "cat")
    return Source.of("cat", lambda module: _Cat(module, begin).read, batches=True, width=width)


class _Cat:
    """Running `cat`. Requests wait in `asks`; the first `asked` of them were passed to `current`.

    When the current source is done, it answers them all with done; then they are passed to the next source.
    """

    def __init__(self, module: Module, begin: Callable[[], Iterator[Source | None]]) -> None:
        self._module = module
        self._begin = begin
        self._sources: Iterator[Source | None] | None = None
        self._current: Edge | None = None
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._asked = 0
        self._stopping = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._stop(abort, answer)
        else:
            self._asks.append((answer, most))
            self._ask()

    def _ask(self) -> None:
        if self._current is None:
            self._current = self._next()
        if self._current is None:
            self._asks.popleft()[0](True)
            return
        while self._asked < len(self._asks):
            self._asked += 1
            self._current(None, self._got, self._asks[self._asked - 1][1])

    def _got(self, end: End | None, values: Any = None, /) -> None:
        self._asked -= 1
        if self._stopping:
            return
        if end is None:
            self._asks.popleft()[0](None, values)
        elif end is not True:
            self._stopping = True
            close_generator(self._sources)
            self._asks.popleft()[0](end)
        elif not self._asked:
            self._current = None
            self._ask()

    def _next(self) -> Edge | None:
        """Open the next source. Returns None if there is none."""
        if self._sources is None:
            self._sources = self._begin()
        for source in self._sources:
            if isinstance(source, Source):
                return self._module.open(source)
            if source is not None:
                close_generator(self._sources)
                raise _no_source(source, self._module)
        return None

    def _stop(self, cause: End, answer: AnswerTo) -> None:
        def confirmed(end: End | None, _value: Any = None, /) -> None:
            close_generator(self._sources)
            answer(end)

        self._stopping = True
        if self._current is None:
            confirmed(cause)
        else:
            self._current(cause, confirmed)


def _no_source(found: object, module: Module) -> NotComposable:
    called = describe(found) if isinstance(found, AnyModule) else f"a value of type {type(found).__name__}"
    return NotComposable(
        f"cat() was given {called}, which is no source",
        where=[module.location],
        why="It reads one source after the other.",
        fix="values([...]) or iterate(...) make a source of what can be iterated; flatten() takes both",
    )
