"""Source module that awaits its values, such as a connection's bytes or accepted connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from headrace.pull.module_context import Module
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, End, Read


class ByteReader(Protocol):
    """Asynchronous side of a source."""

    async def read(self) -> Any:
        """Read the next value; a false one (b"", None) at the end, once all its resources are closed.

        Raises the error that the stream fails with, also after closing. May be cancelled; never called
        concurrently.
        """

    async def close(self, cause: End) -> None:
        """Stop reading, and wait until all resources are closed. Not called after an end."""

    def cancel(self) -> None:
        """Release everything still open, without waiting. Always called last, even after an end."""


def opens_byte_source(make: Callable[[Module], ByteReader]) -> Callable[[Module], Read]:
    """Create the function that opens the source in a run; `make` creates its `ByteReader`.

    The source reads when asked; an abort cancels a pending read, then closes.
    """

    def open(module: Module) -> Read:
        reader = make(module)
        module.cancel_at_end(reader)
        return _Reading(module, reader).read

    return open


class _Reading:
    def __init__(self, module: Module, reader: ByteReader) -> None:
        self._module = module
        self._reader = reader
        self._step: Cancellable | None = None
        self._ends: asyncio.Event | None = None
        """Event set when the pending read is over, which `close` waits for."""

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is None:
            self._step = self._module.spawn(self._next(), partial(self._arrived, answer))
            return
        if self._step is not None:
            self._step.cancel()
        self._module.spawn(self._close(abort), lambda error, _result: answer(error or abort))

    async def _next(self) -> Any:
        self._ends = asyncio.Event()
        try:
            return await self._reader.read()
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
        await self._reader.close(cause)
