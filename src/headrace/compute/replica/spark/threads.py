"""Thread pool of the Spark runtime: waiting for Spark or a store never blocks the replica."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from headrace.compute.collections.opening import open_collections
from headrace.compute.collections.store import Collections

Stores: TypeAlias = Callable[[], Collections]
"""Function that returns the thread's own connection to the collections, opened at first use."""
Work: TypeAlias = Callable[[Stores], None]


class SparkThreads:
    """Thread pool that runs jobs in order as threads become free."""

    def __init__(self, name: str, size: int, uri: str) -> None:
        self._uri = uri
        self._waiting: deque[Work] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(size)
        ]
        for thread in self._threads:
            thread.start()

    def run_job(self, work: Work) -> None:
        """Run a job on one of the threads, unless the pool is closed. It must not raise."""
        with self._changed:
            if not self._closed:
                self._waiting.append(work)
                self._changed.notify()

    def close(self) -> None:
        """Wait for running jobs to end, and discard the queued ones."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()

    def _run(self) -> None:
        opened: list[Collections] = []

        def stores() -> Collections:
            if not opened:
                opened.append(open_collections(self._uri))
            return opened[0]

        while (work := self._next()) is not None:
            try:
                work(stores)
            except Exception:
                logging.getLogger(__name__).exception("work of the Spark runtime failed")
        for store in opened:
            store.close()

    def _next(self) -> Work | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed)
            return None if self._closed else self._waiting.popleft()
