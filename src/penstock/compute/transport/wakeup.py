"""Wakeup of an event loop by a replica, its runtime and their threads."""

from __future__ import annotations

import asyncio
import contextlib
import threading


class Wakeup:
    """A wakeup from any thread, also before a loop listens; several rings count as one.

    error: what the process is to end with, once `halt` was called.
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
        # A loop that is closed has nothing to do any more.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._rung.set)

    def halt(self, error: Exception) -> None:
        """End the process with an error; the first one counts."""
        if self.error is None:
            self.error = error
        self.ring()

    def listen(self) -> None:
        """Deliver rings to the running loop from now on."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()

    async def heard(self, seconds: float | None = None) -> None:
        """Wait for a ring, at most for a time."""
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
