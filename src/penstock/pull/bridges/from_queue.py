"""from_queue: what others put into a queue."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from penstock.pull.bridges.queues import ForThreads, Opened, opened
from penstock.pull.module import Module
from penstock.pull.pieces import Source
from penstock.pull.protocol import AnswerTo, BatchRead, End

if TYPE_CHECKING:
    import asyncio

_NONE = object()


def from_queue(queue: ForThreads | asyncio.Queue[Any], *, end: Any = _NONE) -> Source:
    """The items of a `queue.Queue` or an `asyncio.Queue`, in the order in which it gives them.

    end: the item that says that no more will come; compared by `is`. Without it the stream lasts
         until it is stopped.

    An item is taken when it is asked for, and counts as done (`task_done`) then. While there is none it
    waits in the event loop, for a `queue.Queue` in a thread of its own. A stop is confirmed at once
    and takes nothing more; of an `asyncio.Queue` an item may be lost that had just been taken.

    >>> import queue
    >>> from penstock.pull import collect, pull
    >>> letters = queue.Queue()
    >>> for letter in ["a", "b", None]:
    ...     letters.put(letter)
    >>> pull(from_queue(letters, end=None), collect()).run()
    ['a', 'b']
    """
    items = opened("from_queue", queue)

    def open(module: Module) -> BatchRead:
        return _Taking(module, items, end).read

    return Source.of("from_queue", open, batches=True)


class _Taking:
    def __init__(self, module: Module, items: Opened, last: Any) -> None:
        self._module = module
        self._items = items
        self._last = last
        self._over = False
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._taken: list[Any] = []  # by waiting
        self._waits = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            answer(abort)  # the task that waits is cancelled when the stream has ended
        else:
            self._asks.append((answer, most))
            self._give()

    def _give(self) -> None:
        while self._asks and not self._waits:
            answer, most = self._asks[0]
            batch = self._take(most)
            if batch:
                self._asks.popleft()
                answer(None, batch)
            elif self._over:
                self._asks.popleft()
                answer(True)
            else:
                self._waits = True
                self._module.spawn(self._items.filled(), self._filled)

    def _take(self, most: int) -> list[Any]:
        batch: list[Any] = []
        while len(batch) < most and not self._over:
            found, self._taken = self._taken or self._items.take(), []
            if not found:
                break
            if found[0] is self._last:
                self._over = True
            else:
                batch += found
        return batch

    def _filled(self, error: Exception | None, taken: list[Any]) -> None:
        self._waits = False
        if error is not None:
            raise error
        self._taken = taken
        self._give()
