"""Rows of an asynchronous iterable as a pull-stream, read ahead by a background task."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterable, AsyncIterator
from typing import TYPE_CHECKING, Any

from headrace.pull import PullSource
from headrace.pull.errors import CallCancelled
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End

if TYPE_CHECKING:
    import asyncio

    from headrace.pull.pipeline_runtime import Cancellable


def rows_ahead(rows: AsyncIterable[Any], room: int | None) -> PullSource:
    """Build a source of an asynchronous iterable's rows that reads up to `room` rows ahead (None: unlimited).

    Reading starts with the first request. An exception of the iterable is answered after the rows before it.
    A stop cancels the pending read, and is confirmed once the iterable is closed.
    """
    return PullSource.of(
        "async rows", lambda module: _Ahead(module, rows, room).read, batches=True, linear=True
    )


class _Ahead:
    def __init__(self, module: Module, rows: AsyncIterable[Any], room: int | None) -> None:
        self._module = module
        self._iterable = rows
        self._room = room
        self._rows: AsyncIterator[Any] | None = None
        self._waiting: deque[Any] = deque()
        self._ask: tuple[AnswerTo, int] | None = None
        self._answering = False
        self._task: Cancellable | None = None
        self._left: asyncio.Event | None = None
        self._free: asyncio.Event | None = None
        self._ended = False
        self._failure: Exception | None = None
        self._stopped = False

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._stop(abort, answer)
            return
        self._ask = answer, most
        if self._task is None:
            self._task = self._module.spawn(self._bring(), lambda _error, _result: None)
        self._answer()

    def _answer(self) -> None:
        """Answer the pending request if rows are available."""
        self._answering = False
        if self._ask is None or self._stopped:
            return
        (answer, most), waiting = self._ask, self._waiting
        if waiting:
            self._ask = None
            answer(None, [waiting.popleft() for _ in range(min(most, len(waiting)))])
            if self._free is not None:
                self._free.set()
        elif self._ended:
            self._ask = None
            answer(self._failure or True)

    def _news(self) -> None:
        # Answer later: more rows may arrive before the task waits.
        if self._ask is not None and not self._answering and not self._stopped:
            self._answering = True
            self._module.later(0, self._answer)

    # -- the task -------------------------------------------------------------------------------

    async def _bring(self) -> None:
        import asyncio

        self._left, self._free = asyncio.Event(), asyncio.Event()
        try:
            await self._draw(self._free)
            await self._close()
        except asyncio.CancelledError:
            if self._stopped:
                raise
            self._failure = self._cancelled()
        except Exception as error:
            self._failure = self._failure or error
        finally:
            self._left.set()
        self._ended = True
        self._news()

    async def _draw(self, free: asyncio.Event) -> None:
        try:
            self._rows = aiter(self._iterable)
            async for row in self._rows:
                while self._room is not None and len(self._waiting) >= self._room:
                    free.clear()
                    await free.wait()
                self._waiting.append(row)
                self._news()
        except Exception as error:
            self._failure = error

    def _cancelled(self) -> CallCancelled:
        return CallCancelled(
            "the next row of an asynchronous source was cancelled",
            where=[self._module.location],
            why="The run did not cancel it: the source cancelled itself, or awaited a cancelled task.",
            fix="catch CancelledError in the source where it awaits another task",
        )

    async def _close(self) -> None:
        if hasattr(self._rows, "aclose"):
            await self._rows.aclose()  # pyright: ignore[reportOptionalMemberAccess, reportAttributeAccessIssue, reportUnknownMemberType]

    # -- the end --------------------------------------------------------------------------------

    def _stop(self, cause: End, answer: AnswerTo) -> None:
        self._stopped = True
        self._waiting.clear()
        if self._task is None or self._ended:
            answer(cause)
            return
        self._task.cancel()
        self._module.spawn(self._closed(), lambda error, _result: answer(error or cause))

    async def _closed(self) -> None:
        if self._left is not None:  # otherwise the task had not started
            await self._left.wait()
            await self._close()
