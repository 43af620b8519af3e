"""Queues of both kinds, as modules use them: at once where that can be, else waited for in a task."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import BadOption, SourceLocation

if TYPE_CHECKING:
    import asyncio

ForThreads = queue.Queue[Any]


class Opened(Protocol):
    """A queue of either kind."""

    def take(self) -> list[Any]:
        """The next item, or nothing."""
        ...

    async def filled(self) -> list[Any]:
        """Wait until there is something to take; the item, where waiting has taken it."""
        ...

    def put(self, item: Any) -> bool:
        """Whether there was room for it."""
        ...

    async def put_later(self, item: Any) -> None:
        """Wait for room, and put it."""
        ...


def opened(piece: str, found: object) -> Opened:
    """Raises `BadOption` for what is no queue."""
    if isinstance(found, queue.Queue):
        return _OfThreads(found)  # pyright: ignore[reportUnknownArgumentType]
    import asyncio

    if isinstance(found, asyncio.Queue):
        return _OfTasks(found)  # pyright: ignore[reportUnknownArgumentType]
    raise BadOption(
        f"{piece}() cannot work with a {type(found).__name__}",
        where=[SourceLocation.of_caller()],
        why="It has to wait for the queue without blocking the pipeline.",
        fix="give a queue.Queue (also LifoQueue, PriorityQueue) or an asyncio.Queue",
        piece=piece,
        option="queue",
    )


class _OfTasks:
    """An `asyncio.Queue`: used in the thread of its event loop only."""

    def __init__(self, queue: asyncio.Queue[Any]) -> None:
        self._queue = queue

    def take(self) -> list[Any]:
        return [] if self._queue.empty() else [self._taken(self._queue.get_nowait())]

    async def filled(self) -> list[Any]:
        return [self._taken(await self._queue.get())]

    def _taken(self, item: Any) -> Any:
        self._queue.task_done()
        return item

    def put(self, item: Any) -> bool:
        if self._queue.full():
            return False
        self._queue.put_nowait(item)
        return True

    async def put_later(self, item: Any) -> None:
        await self._queue.put(item)


class _OfThreads:
    """A `queue.Queue`: others take from it and put into it at any time. Waiting takes nothing."""

    def __init__(self, queue: ForThreads) -> None:
        self._queue = queue

    def take(self) -> list[Any]:
        try:
            item = self._queue.get_nowait()
        except queue.Empty:
            return []
        self._queue.task_done()
        return [item]

    async def filled(self) -> list[Any]:
        await _until(self._queue.not_empty, lambda: len(self._queue.queue) > 0)
        return []

    def put(self, item: Any) -> bool:
        try:
            self._queue.put_nowait(item)
        except queue.Full:
            return False
        return True

    async def put_later(self, item: Any) -> None:
        while not self.put(item):
            await _until(self._queue.not_full, lambda: len(self._queue.queue) < self._queue.maxsize)


async def _until(condition: threading.Condition, holds: Callable[[], bool]) -> None:
    """Wait in a thread for a condition. Cancelled, the thread ends, and the others that wait are told again:
    it may have been woken in their place."""
    import asyncio

    loop = asyncio.get_running_loop()
    reached: asyncio.Future[None] = loop.create_future()
    given_up = False

    def settle() -> None:
        if not reached.done():
            reached.set_result(None)

    def wait() -> None:
        with condition:
            condition.wait_for(lambda: given_up or holds())
            if not given_up:
                loop.call_soon_threadsafe(settle)

    threading.Thread(target=wait, name="penstock-queue", daemon=True).start()
    try:
        await reached
    except asyncio.CancelledError:
        with condition:
            given_up = True
            condition.notify_all()
        raise
