"""`sorted_merge`: merge sorted streams into one sorted stream."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

from headrace.errors import BadOption, SourceLocation
from headrace.pull.argument_checks import AWAIT_BEFORE, synchronous_check
from headrace.pull.compose import require_one_kind
from headrace.pull.edge import Edge, stop_all
from headrace.pull.errors import NotSorted
from headrace.pull.module_context import Module
from headrace.pull.modules import Source
from headrace.pull.protocol import AnswerTo, End

Equal = Literal["both", "left", "right"]
Key = Callable[[Any], Any]


def sorted_merge(*sources: Source, key: Key | None = None, equal: Equal = "both") -> Source:
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
    require_one_kind(Source, "sorted_merge", sources)
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
    return Source.of(
        "sorted_merge", lambda module: _Sorted(module, sources, key_of, equal, location).read, batches=True
    )


def _same(value: Any) -> Any:
    return value


_NOTHING = object()


class _Input:
    """State of one source: its values not yet in the heap. last: key of its last value in the heap."""

    def __init__(self, edge: Edge, rank: int) -> None:
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
        self, module: Module, sources: tuple[Source, ...], key: Key, equal: Equal, location: SourceLocation
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
        """Move a missing input's next value into the heap, if it is known."""
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
