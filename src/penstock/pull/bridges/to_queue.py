"""to_queue: values into a queue that others take from."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.pull.bridges.queues import ForThreads, Opened, opened
from penstock.pull.edge import Edge
from penstock.pull.module import Module
from penstock.pull.pieces import Sink
from penstock.pull.protocol import End

if TYPE_CHECKING:
    import asyncio

_NONE = object()


def to_queue(queue: ForThreads | asyncio.Queue[Any], *, end: Any = _NONE) -> Sink:
    """Puts the values into a `queue.Queue` or an `asyncio.Queue`; the result is how many.

    end: put after the last value, also where the stream failed; without it nothing.

    Where the queue is full it waits for room, and asks for nothing meanwhile: a bounded queue slows
    down the source. Where the stream fails, `Run.partial` is how many there were.

    >>> import queue
    >>> from penstock.pull import pull, values
    >>> letters = queue.Queue()
    >>> pull(values("ab"), to_queue(letters, end=None)).run()
    2
    >>> list(iter(letters.get, None))
    ['a', 'b']
    """
    items = opened("to_queue", queue)
    return Sink.of("to_queue", lambda module, edge: _Putting(module, edge, items, end).ask())


class _Putting:
    """Values that wait for room and requests under way are at most a window."""

    def __init__(self, module: Module, edge: Edge, items: Opened, last: Any) -> None:
        self._module = module
        self._edge = edge
        self._items = items
        self._last = last
        self._held: deque[Any] = deque()
        self._under_way = 0
        self._waits = False
        self._put = 0
        self._end: End | None = None

    def ask(self) -> None:
        while self._end is None and self._under_way + len(self._held) < self._edge.window:
            self._under_way += 1
            self._edge(None, self._got)

    def _got(self, end: End | None, value: Any = None, /) -> None:
        self._under_way -= 1
        if end is None:
            self._held.append(value)
        elif self._end is None:
            self._end = end
            if self._last is not _NONE:
                self._put -= 1
                self._held.append(self._last)
        self._go_on()

    def _go_on(self) -> None:
        while self._held and not self._waits:
            if self._items.put(self._held[0]):
                self._done()
            else:
                self._waits = True
                self._module.spawn(self._items.put_later(self._held[0]), self._made_room)
        if self._end is None:
            self.ask()
        elif not self._held:
            self._finish(self._end)

    def _done(self) -> None:
        self._held.popleft()
        self._put += 1

    def _made_room(self, error: Exception | None, _result: None) -> None:
        self._waits = False
        if error is not None:
            raise error
        self._done()
        self._go_on()

    def _finish(self, end: End) -> None:
        if end is True:
            self._module.done(self._put)
        else:
            self._module.fail(end, self._put)
