"""Wakeup of an event loop, called by a replica, its runtime and their threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Wakeup:
    """Wakeup of an event loop from any thread, also before the loop listens; several rings count as one.

    error: the error to end the process with, once `end_process` was called.
    """

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """Wake the loop."""
        if self._loop is None or threading.get_ident() == self._thread:
            self._rung.set()
            return
        # A closed loop has nothing left to do.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    def end_process(self, error: Exception) -> None:
        """End the process with an error; only the first one counts."""
        if self.error is None:
            self.error = error
        self.ring()

    def attach_to_loop(self) -> None:
        """Deliver rings to the running event loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def wait_for_ring(self, seconds: float | None = None) -> None:
        """Wait for a ring, for at most `seconds`, or without limit if None."""
        if not self._rung.is_set():
            if seconds is None:
                await self._rung.wait()
            else:
                timer = asyncio.get_running_loop().call_later(seconds, self._rung.set)
                try:
                    await self._rung.wait()
                finally:
                    timer.cancel()
        self._rung.clear()
