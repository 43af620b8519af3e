"""A thread that waits for collections to change, so that the thread of the replica does not have to."""

from __future__ import annotations

import threading
from collections.abc import Callable

from penstock.compute.collections.opening import open_collections
from penstock.compute.collections.store import Collections
from penstock.compute.errors import ComputeError

_AT_A_TIME = 0.5
"""Seconds after which it looks whether it is to stop."""


class Watcher:
    """Calls `noticed` whenever a collection of a store may have changed, until it is stopped.

    It has a connection of its own to the store, and calls when that is there too: of what changed before, it
    is not told.
    """

    def __init__(self, uri: str, noticed: Callable[[], None]) -> None:
        self._uri = uri
        self._noticed = noticed
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="penstock-watcher", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait until it has."""
        self._stopped.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stopped.is_set():
            try:
                store = open_collections(self._uri)
            except ComputeError:
                self._noticed()  # who reads the store will meet the error, too, and say so
                self._stopped.wait(_AT_A_TIME)
                continue
            try:
                self._watch_one(store)
            except ComputeError:
                self._noticed()
                self._stopped.wait(_AT_A_TIME)
            finally:
                store.close()

    def _watch_one(self, store: Collections) -> None:
        self._noticed()
        while not self._stopped.is_set():
            if store.wait(_AT_A_TIME):
                self._noticed()
