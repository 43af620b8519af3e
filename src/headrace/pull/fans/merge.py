"""`merge`, `many`: combine several streams into one, values in order of arrival."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any

from headrace.errors import SourceLocation
from headrace.pull.compose import require_one_kind
from headrace.pull.edge import Edge, stop_all
from headrace.pull.errors import AlreadyUsed
from headrace.pull.module_context import Module
from headrace.pull.modules import Source, SourcePart
from headrace.pull.protocol import AnswerTo, BatchRead, End
from headrace.pull.running_modules import Registry


class MergeState:
    """Running merge, which reads ahead on every input from the first request on.

    capped:  end when the inputs have ended.

    `ready` holds the values in order of arrival. Each input has at most its window of values there, so no
    input waits for more than one round of the others.
    """

    def __init__(
        self,
        module: Module,
        sources: Iterable[Source],
        *,
        capped: bool = True,
    ) -> None:
        self._module = module
        self._capped = capped
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._ready: deque[tuple[Edge, list[Any]]] = deque()
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

    def add(self, source: Source) -> None:
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

    def _ask_ahead(self, edge: Edge) -> None:
        for _ in range(edge.window):
            self._ask(edge)

    def _ask(self, edge: Edge) -> None:
        edge(None, partial(self._got, edge), self._most)

    def _got(self, edge: Edge, end: End | None, values: Any = None, /) -> None:
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


def merge(*sources: Source) -> Source:
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
    require_one_kind(Source, "merge", sources)
    return Source.of("merge", lambda module: MergeState(module, sources).read, batches=True)


def many(sources: Iterable[Source] = (), *, open_ended: bool = False) -> Many:
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
    inputs = _Inputs(require_one_kind(Source, "many", sources), open_ended)
    return Many(SourcePart("many", location, inputs.open, batches=True), inputs)


class Many(Source):
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

    def add(self, source: Source) -> None:
        """Add a source. Raises `AlreadyUsed` after `cap`, and without `open_ended`."""
        self._inputs.add(*require_one_kind(Source, "add", [source]))

    def cap(self) -> None:
        """Accept no further sources, and end with the existing ones. Later calls have no effect."""
        self._inputs.cap()


class _Inputs:
    """Distributor of added sources to the active runs."""

    def __init__(self, sources: tuple[Source, ...], open_ended: bool) -> None:
        self.capped = not open_ended
        self._sources = sources
        self._waiting: list[Source] = []
        self.at_work: Registry[tuple[Module, MergeState]] = Registry()

    def open(self, module: Module) -> BatchRead:
        waiting, self._waiting = self._waiting, []
        joined = MergeState(module, (*self._sources, *waiting), capped=self.capped)
        self.at_work.add(module, (module, joined))
        return joined.read

    def add(self, source: Source) -> None:
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
