"""VirtualLoop: an event loop whose clock stands until it is told to go on."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

R = TypeVar("R")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs what is ready, and stops instead of waiting.

    clock: the virtual time in seconds; timers of the loop fire when it has come to theirs.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._watching = _Watching(self)
        self._jobs = 0
        self.next_timer: float | None = None
        """Seconds until the next timer of the loop, as of when it stopped; None where there is none."""
        super().__init__(self._watching)
        self._own_files = len(self._watching.get_map())

    def time(self) -> float:
        return self._clock()

    def turn(self) -> None:
        """Run what is ready, and what becomes ready by that, while the clock stands."""
        self.next_timer = None
        self.run_forever()

    def idle(self, timeout: float | None) -> None:
        """Nothing is ready. timeout: seconds until the next timer."""
        self.next_timer = timeout
        self.stop()

    # -- what the clock does not rule -----------------------------------------------------------

    @property
    def waits_for_outside(self) -> bool:
        """Whether files, sockets, processes or threads may bring something."""
        return self._jobs > 0 or len(self._watching.get_map()) > self._own_files

    def wait_outside(self, seconds: float) -> bool:
        """Wait in real time; whether something has come from outside."""
        return bool(self._watching.wait(seconds))

    def run_in_executor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, executor: Executor | None, func: Callable[..., R], *args: Any
    ) -> asyncio.Future[R]:
        self._jobs += 1
        future: asyncio.Future[R] = super().run_in_executor(executor, func, *args)  # pyright: ignore
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _future: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    def shut(self) -> None:
        """Close it, with what is left of its tasks."""
        self._watching.real_time = True
        left = asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.run_until_complete(self.shutdown_asyncgens())
        self.run_until_complete(self.shutdown_default_executor())
        self.close()


class _Watching(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Sees that the loop is about to wait: it asks for events with a time limit that is not 0."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self.real_time = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.real_time:
            return super().select(timeout)
        found = super().select(0)
        if not found and timeout != 0:
            self._loop.idle(timeout)
        return found

    def wait(self, seconds: float) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(seconds)
