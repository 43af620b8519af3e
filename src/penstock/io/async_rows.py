"""Rows of an async iterable: brought by a task of the event loop, taken by ticks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterable, Callable
from typing import Any

from penstock.io.rows import converted
from penstock.io.source import Batch, Feed, Reader, open_source

_ROWS = "rows"


class AsyncRowsReader(Reader):
    """`bring` runs as a task; `read` takes what it has brought, and never waits.

    What the iterable raises is raised by `read`, after all rows that came before it.
    """

    def __init__(self, rows: AsyncIterable[Any], feed: Feed) -> None:
        self._rows = rows
        self._feed = feed
        self._taken: int = feed.taken.get(_ROWS) or 0
        self._waiting: deque[Any] = deque()
        self._free = asyncio.Event()
        self._failure: Exception | None = None
        self.ended = False
        """Whether the iterable has given its last row."""

    async def bring(self, room: int | None, on_news: Callable[[], None]) -> None:
        """Read the iterable to its end, `room` rows ahead of the ticks at most.

        on_news: called when there is something new to read: a row, the end, a failure.
        """
        skip = self._taken
        rows = aiter(self._rows)
        try:
            async for row in rows:
                if skip:
                    skip -= 1
                    continue
                while room is not None and len(self._waiting) >= room:
                    self._free.clear()
                    await self._free.wait()
                self._waiting.append(row)
                on_news()
        except Exception as error:
            self._failure = error
        finally:
            self.ended = True
            on_news()
            if hasattr(rows, "aclose"):
                await rows.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]

    def read(self, limit: int | None) -> Batch | None:
        waiting = self._waiting
        if limit is None or limit >= len(waiting):
            rows = list(waiting)
            waiting.clear()
        else:
            rows = [waiting.popleft() for _ in range(limit)]
        self._free.set()
        if not rows:
            if self._failure is not None:
                raise self._failure
            self.done = self.ended
            return None
        batch = converted(rows, self._feed, f"{self._taken} rows")
        self._taken += len(rows)
        self._feed.taken[_ROWS] = self._taken
        self.done = self.ended and not waiting and self._failure is None
        return batch


@open_source.register(AsyncIterable)
def _(source: AsyncIterable[Any], feed: Feed) -> Reader:
    return AsyncRowsReader(source, feed)
