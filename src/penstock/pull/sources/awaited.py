"""Awaited: reads of a source whose values come from an asynchronous iterator."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from penstock.pull.module import Module
from penstock.pull.pieces import Source
from penstock.pull.protocol import AnswerTo, End, Read
from penstock.pull.sources.drawn import once_only

if TYPE_CHECKING:
    import asyncio

    from penstock.pull.runtime import Cancellable

_OVER = object()


def awaited(items: AsyncIterable[Any]) -> Source:
    """See `iterate`."""
    if isinstance(items, AsyncIterator):
        begin = once_only(items, "iterate")
    else:
        begin = items.__aiter__

    def open(module: Module) -> Read:
        return _Awaited(module, begin).read

    return Source.of("iterate", open, linear=True, width=1)


class _Awaited:
    """One task per value, and one that closes. The latter waits for the former, which it has cancelled."""

    def __init__(self, module: Module, begin: Callable[[], AsyncIterator[Any]]) -> None:
        self._module = module
        self._begin = begin
        self._items: AsyncIterator[Any] | None = None
        self._step: Cancellable | None = None
        self._works = False
        self._left: asyncio.Event | None = None
        """Set when a step that was cancelled has left the iterator."""
        self._failure: Exception | None = None

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._ask(answer)
        elif self._items is None:
            answer(abort)
        else:
            self._stop(self._items, abort, answer)

    def _ask(self, answer: AnswerTo) -> None:
        if self._items is None:
            self._items = self._begin()

        def arrived(error: Exception | None, value: Any) -> None:
            self._step = None
            if error is not None:
                raise error
            if value is _OVER:
                answer(True)
            else:
                answer(None, value)

        self._step = self._module.spawn(self._next(self._items), arrived)

    async def _next(self, items: AsyncIterator[Any]) -> Any:
        self._works = True
        try:
            return await anext(items, _OVER)
        except Exception as error:
            self._failure = error
            raise
        finally:
            self._works = False
            if self._left is not None:
                self._left.set()

    def _stop(self, items: AsyncIterator[Any], cause: End, answer: AnswerTo) -> None:
        def closed(error: Exception | None, _result: None) -> None:
            answer(error or cause)

        if self._step is not None:
            self._step.cancel()
        self._module.spawn(self._close(items), closed)

    async def _close(self, items: AsyncIterator[Any]) -> None:
        import asyncio

        if self._works:  # a generator that is being worked on cannot be closed
            self._left = asyncio.Event()
            await self._left.wait()
        if self._failure is not None:
            raise self._failure  # of the step that was cancelled: nobody else would hear of it
        if isinstance(items, AsyncGenerator):
            await items.aclose()
