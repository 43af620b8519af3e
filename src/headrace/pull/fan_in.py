"""`merge`, `many`, `sorted_merge`, `cat`: several streams combined into one, at once or one after another."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Literal

from headrace.errors import BadOption, SourceLocation
from headrace.pull.argument_checks import AWAIT_BEFORE, synchronous_check
from headrace.pull.compose import describe, require_one_kind
from headrace.pull.edge import PullEdge, stop_all
from headrace.pull.errors import AlreadyUsed, NotComposable, NotSorted
from headrace.pull.module_context import Module, Registry
from headrace.pull.modules import AnyModule, PullSource, SourcePart
from headrace.pull.protocol import AnswerTo, BatchRead, End
from headrace.pull.sources import close_generator, iteration_starter


class MergeState:
    """Running merge, which reads ahead on every input from the first request on.

    capped:  end when the inputs have ended.

    `ready` holds the values in order of arrival. Each input has at most its window of values there, so no
    input waits for more than one round of the others.
    """

    def __init__(
        self,
        module: Module,
        sources: Iterable[PullSource],
        *,
        capped: bool = True,
    ) -> None:
        self._module = module
        self._capped = capped
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._ready: deque[tuple[PullEdge, list[Any]]] = deque()
        self._most = 0  # values per request of downstream; reading starts with the first request
        self._inputs = [module.open(source) for source in sources]
        self._open = dict.fromkeys(self._inputs)
        self._closing = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._closing = True
            stop_all(list(self._open), abort, answer)
            return
        self._asks.append((answer, most))
        self._most = most
        if self._inputs:
            unread, self._inputs = self._inputs, []
            for edge in unread:
                self._ask_ahead(edge)
        self._give()

    def add(self, source: PullSource) -> None:
        """Add an input."""
        if self._closing:
            return
        edge = self._module.open(source)
        self._open[edge] = None
        if self._most:
            self._ask_ahead(edge)
        else:
            self._inputs.append(edge)

    def cap(self) -> None:
        """Accept no further inputs."""
        self._capped = True
        self._give()

    def _ask_ahead(self, edge: PullEdge) -> None:
        for _ in range(edge.window):
            self._ask(edge)

    def _ask(self, edge: PullEdge) -> None:
        edge(None, partial(self._got, edge), self._most)

    def _got(self, edge: PullEdge, end: End | None, values: Any = None, /) -> None:
        if self._closing:
            return
        if isinstance(end, Exception):
            raise end
        if end is None:
            self._ready.append((edge, values))
        else:
            self._open.pop(edge, None)
        self._give()

    def _give(self) -> None:
        ready, asks = self._ready, self._asks
        while asks and ready:
            answer, most = asks.popleft()
            found: list[Any] = []
            while ready and len(found) < most:
                self._take(found, most - len(found))
            answer(None, found)
        if asks and self._capped and not self._open:
            asks.popleft()[0](True)

    def _take(self, found: list[Any], most: int) -> None:
        """Move values of the next input in turn; ask it again when all its values are used."""
        edge, values = self._ready.popleft()
        found.extend(values[:most])
        if len(values) > most:
            # These values must not end up after later values of the same input.
            later = any(other is edge for other, _values in self._ready)
            (self._ready.appendleft if later else self._ready.append)((edge, values[most:]))
        else:
            self._ask(edge)


def merge(*sources: PullSource) -> PullSource:
    """Merge the values of all sources in order of arrival; each source's own order is kept.

    From the first request on, each source is asked ahead for one value (or for its window, if it works on
    several at once; or for the values of one downstream request). So sources that answer immediately take
    turns, and a slow one does not delay the others. `sorted_merge` merges by a key; `many` accepts sources
    while it runs.

    The stream ends when all sources have ended. A failing source fails the others with its error; once they
    have confirmed, the error is answered, and values read ahead are lost. An abort is confirmed when all
    have confirmed.

    >>> from headrace.pull import collect, pull, values
    >>> pull(merge(values("ace"), values("bd")), collect()).run()
    ['a', 'b', 'c', 'd', 'e']
    """
    require_one_kind(PullSource, "merge", sources)
    return PullSource.of("merge", lambda module: MergeState(module, sources).read, batches=True)


def many(sources: Iterable[PullSource] = (), *, open_ended: bool = False) -> Many:
    """Merge sources as `merge` does, with a handle to add more.

    open_ended: keep the stream open when all sources have ended; `add(source)` adds more, until `cap()`.

    >>> from headrace.pull import collect, pull, values
    >>> letters = many([values("ace"), values("b")], open_ended=True)
    >>> letters.add(values("d"))
    >>> letters.cap()
    >>> pull(letters, collect()).run()
    ['a', 'b', 'd', 'c', 'e']
    """
    location = SourceLocation.of_caller()
    inputs = _Inputs(require_one_kind(PullSource, "many", sources), open_ended)
    return Many(SourcePart("many", location, inputs.open, batches=True), inputs)


class Many(PullSource):
    """Merged source that is also the handle to add sources; see `many`.

    It may run several times: each run reads the original sources. Added sources go to all active runs, or to
    the next run if there is none.
    """

    __slots__ = ("_inputs",)
    _inputs: _Inputs

    def __init__(self, part: SourcePart, inputs: _Inputs) -> None:
        super().__init__(part)
        object.__setattr__(self, "_inputs", inputs)

    @property
    def capped(self) -> bool:
        """Whether the source accepts no further sources."""
        return self._inputs.capped

    def add(self, source: PullSource) -> None:
        """Add a source. Raises `AlreadyUsed` after `cap`, and without `open_ended`."""
        self._inputs.add(*require_one_kind(PullSource, "add", [source]))

    def cap(self) -> None:
        """Accept no further sources, and end with the existing ones. Later calls have no effect."""
        self._inputs.cap()


class _Inputs:
    """Distributor of added sources to the active runs."""

    def __init__(self, sources: tuple[PullSource, ...], open_ended: bool) -> None:
        self.capped = not open_ended
        self._sources = sources
        self._waiting: list[PullSource] = []
        self.at_work: Registry[tuple[Module, MergeState]] = Registry()

    def open(self, module: Module) -> BatchRead:
        waiting, self._waiting = self._waiting, []
        joined = MergeState(module, (*self._sources, *waiting), capped=self.capped)
        self.at_work.add(module, (module, joined))
        return joined.read

    def add(self, source: PullSource) -> None:
        if self.capped:
            raise AlreadyUsed(
                "no source can be added to many() any more",
                where=[SourceLocation.of_caller()],
                why="It is capped: it ends with the sources that it has.",
                fix="many(sources, open_ended=True), and cap() after the last add()",
            )
        if not self.at_work:
            self._waiting.append(source)
        for module, joined in self.at_work:
            module.enter(joined.add, source)

    def cap(self) -> None:
        self.capped = True
        for module, joined in self.at_work:
            module.enter(joined.cap)


Equal = Literal["both", "left", "right"]
Key = Callable[[Any], Any]


def sorted_merge(*sources: PullSource, key: Key | None = None, equal: Equal = "both") -> PullSource:
    """Merge sources that are each sorted in ascending order of `key(value)`, or of the value.

    equal: of values with equal keys, "both" emits all, in the order of the sources; "left" only those of the
           first source with such a key, "right" only those of the last.

    A source is asked for as many values as one downstream request, and again when they are used and more are
    wanted; sooner if it works on several at once. A value is emitted once the next value or the end of every
    source is known.

    The stream ends when all sources have ended. A source that fails, or is not sorted (`NotSorted`), fails
    the others with its error; once they have confirmed, the error is answered. An abort is confirmed when
    all have confirmed. The original swallowed errors, and emitted only the right one of two equal values.

    >>> from headrace.pull import collect, pull, values
    >>> pull(sorted_merge(values([1, 4, 6]), values([2, 4]), values([3])), collect()).run()
    [1, 2, 3, 4, 4, 6]
    """
    location = SourceLocation.of_caller()
    require_one_kind(PullSource, "sorted_merge", sources)
    if equal not in ("both", "left", "right"):
        raise BadOption(
            f"sorted_merge() cannot work with equal={equal!r}",
            where=[location],
            why="Of values with equal keys all go on, or those of one source.",
            fix='equal="both", equal="left" or equal="right"',
            constructor="sorted_merge",
            option="equal",
        )
    key_of = _same if key is None else synchronous_check("sorted_merge", key, fix=AWAIT_BEFORE).calling(key)
    return PullSource.of(
        "sorted_merge", lambda module: _Sorted(module, sources, key_of, equal, location).read, batches=True
    )


def _same(value: Any) -> Any:
    return value


_NOTHING = object()


class _Input:
    """State of one source: its values not yet in the heap. last: key of its last value in the heap."""

    def __init__(self, edge: PullEdge, rank: int) -> None:
        self.edge = edge
        self.rank = rank
        self.values: deque[Any] = deque()
        self.asked = 0
        self.shown = False
        self.ended = False
        self.last: Any = _NOTHING


class _Sorted:
    """Running merge. The heap holds the next value of each input, with equal keys in the order of `rank`.

    For `missing` inputs, neither the next value nor the end is known. The `hungry` have used a value since
    they were last asked: each is asked up to its window, including values that have already arrived.
    `group` is the key emitted last, `winner` the first input that had it.
    """

    def __init__(
        self,
        module: Module,
        sources: tuple[PullSource, ...],
        key: Key,
        equal: Equal,
        location: SourceLocation,
    ) -> None:
        self._key = key
        self._one_source_only = equal != "both"
        self._location = location
        sign = -1 if equal == "right" else 1
        self._inputs = [_Input(module.open(source), sign * at) for at, source in enumerate(sources)]
        self._hungry = list(self._inputs)
        self._missing = len(self._inputs)
        self._heap: list[tuple[Any, int, Any, _Input]] = []
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._group: Any = _NOTHING
        self._winner: _Input | None = None
        self._closing = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._closing = True
            self._asks.clear()
            stop_all([each.edge for each in self._inputs if not each.ended], abort, answer)
            return
        self._asks.append((answer, most))
        self._go_on()

    def _go_on(self) -> None:
        while self._asks:
            self._ask_hungry(self._asks[0][1])
            if self._missing:
                return
            if not self._heap:
                self._asks.popleft()[0](True)
                return
            self._give()

    def _ask_hungry(self, most: int) -> None:
        hungry, self._hungry = self._hungry, []
        for each in hungry:
            while not each.ended and each.asked + len(each.values) < each.edge.window:
                each.asked += 1
                each.edge(None, partial(self._got, each), most)

    def _got(self, each: _Input, end: End | None, values: Any = None, /) -> None:
        each.asked -= 1
        if self._closing:
            return
        if end is None:
            each.values.extend(values)
        else:
            each.ended = True
        if isinstance(end, Exception):
            raise end
        if not each.shown:
            self._show_next(each)
        self._go_on()

    def _show_next(self, each: _Input) -> None:
        """Move a missing input's next value into the heap, if it has arrived."""
        if each.values:
            value = each.values.popleft()
            key = self._key(value)
            if each.last is not _NOTHING and key < each.last:
                self._refuse(each, key)
            each.last = key
            heapq.heappush(self._heap, (key, each.rank, value, each))
        elif not each.ended:
            return
        each.shown = True
        self._missing -= 1

    def _give(self) -> None:
        """Answer the first request, unless all known values are dropped."""
        answer, most = self._asks[0]
        found: list[Any] = []
        try:
            while len(found) < most and self._heap and not self._missing:
                self._take_least(found)
        finally:
            if found:  # includes values before an exception
                self._asks.popleft()
                answer(None, found)

    def _take_least(self, found: list[Any]) -> None:
        key, _rank, value, each = heapq.heappop(self._heap)
        if key != self._group:
            self._group, self._winner = key, each
        if each is self._winner or not self._one_source_only:
            found.append(value)
        each.shown = False
        self._missing += 1
        self._hungry.append(each)
        self._show_next(each)

    def _refuse(self, each: _Input, key: Any) -> None:
        raise NotSorted(
            f"source {abs(each.rank) + 1} of sorted_merge() is not sorted: {key!r} comes after {each.last!r}",
            where=[self._location],
            why="The smallest next value is emitted first, so every source must be sorted.",
            fix="sort the source in ascending order by the same key, or use merge(), which needs no order",
            source=abs(each.rank),
            key=key,
            after=each.last,
        )


def cat(sources: Iterable[PullSource | None], *, width: int = 0) -> PullSource:
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
    return PullSource.of("cat", lambda module: _Cat(module, begin).read, batches=True, width=width)


class _Cat:
    """Running `cat`. Requests wait in `asks`; the first `asked` of them were passed to `current`.

    When the current source is done, it answers them all with done; then they are passed to the next source.
    """

    def __init__(self, module: Module, begin: Callable[[], Iterator[PullSource | None]]) -> None:
        self._module = module
        self._begin = begin
        self._sources: Iterator[PullSource | None] | None = None
        self._current: PullEdge | None = None
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

    def _next(self) -> PullEdge | None:
        """Open the next source. Returns None if there is none."""
        if self._sources is None:
            self._sources = self._begin()
        for source in self._sources:
            if isinstance(source, PullSource):
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
