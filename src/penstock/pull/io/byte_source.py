"""Source module whose bytes come from an event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from penstock.pull.module import Module
from penstock.pull.protocol import AnswerTo, End, Read
from penstock.pull.runtime import Cancellable


class ByteReader(Protocol):
    """Where bytes come from: one half of a connection, or all there is of one."""

    async def read(self) -> Any:
        """What comes next; nothing (b"", None) at the end, after all has closed that closes with it.

        Raises what the stream fails with, after that has closed. May be cancelled; not called twice at once.
        """

    async def close(self, cause: End) -> None:
        """It is to stop. Returns when that is closed which closes with it. Not called after an end."""

    def cancel(self) -> None:
        """No one waits any more: let go what is still open. Always called last, also after an end."""


def reading(make: Callable[[Module], ByteReader]) -> Callable[[Module], Read]:
    """What opens the module in a run: reads when asked. An abort cancels a read that waits, and closes."""

    def open(module: Module) -> Read:
        inlet = make(module)
        module.hold(inlet)
        return _Reading(module, inlet).read

    return open


class _Reading:
    def __init__(self, module: Module, inlet: ByteReader) -> None:
        self._module = module
        self._inlet = inlet
        self._step: Cancellable | None = None
        self._ends: Any = None
        """An event of the read that waits: it has to be over before it can be closed."""

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._step = self._module.spawn(self._next(), partial(self._arrived, answer))
            return
        if self._step is not None:
            self._step.cancel()
        self._module.spawn(self._close(abort), lambda error, _result: answer(error or abort))

    async def _next(self) -> Any:
        import asyncio

        self._ends = asyncio.Event()
        try:
            return await self._inlet.read()
        finally:
            self._ends.set()

    def _arrived(self, answer: AnswerTo, error: Exception | None, value: Any) -> None:
        self._step = None
        if error is not None:
            raise error
        if value:
            answer(None, value)
        else:
            answer(True)

    async def _close(self, cause: End) -> None:
        if self._ends is not None:
            await self._ends.wait()
        await self._inlet.close(cause)
