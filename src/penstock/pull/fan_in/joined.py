"""Joined: what `many` and `merge` do in a run: several inputs, their values as they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Any

from penstock.pull.edge import Edge, when_all
from penstock.pull.module import Module
from penstock.pull.pieces import Source
from penstock.pull.protocol import AnswerTo, End


class Joined:
    """Reads every input ahead, from the first request on, and gives what is there.

    capped:  it ends when its inputs have ended.

    `ready` holds what came, in the order in which it came. As each input has only as many values there as
    its window, no input waits for more than one round of the others.
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
        self._most = 0  # values that the last request asked for; nothing is read before there is one
        self._inputs = [module.open(source) for source in sources]
        self._open = dict.fromkeys(self._inputs)
        self._closing = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._closing = True
            when_all(list(self._open), abort, answer)
            return
        self._asks.append((answer, most))
        self._most = most
        if self._inputs:
            unread, self._inputs = self._inputs, []
            for edge in unread:
                self._ask_ahead(edge)
        self._give()

    def add(self, source: Source) -> None:
        """One more input."""
        if self._closing:
            return
        edge = self._module.open(source)
        self._open[edge] = None
        if self._most:
            self._ask_ahead(edge)
        else:
            self._inputs.append(edge)

    def cap(self) -> None:
        """No input will be added."""
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
        """Move values of the input whose turn it is; it is asked again when all it gave is used."""
        edge, values = self._ready.popleft()
        found.extend(values[:most])
        if len(values) > most:
            # Not behind what the same input gave after them.
            later = any(other is edge for other, _values in self._ready)
            (self._ready.appendleft if later else self._ready.append)((edge, values[most:]))
        else:
            self._ask(edge)
