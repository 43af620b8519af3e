"""Group commit: writes that arrive during a commit are committed together in the next.

On a slow disk each client waits for about one commit, rather than for those of all other clients in turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headrace.compute.collections.store import CollectionAppend, Collections
from headrace.compute.controller.controller import Controller
from headrace.compute.errors import StaleEpoch
from headrace.compute.protocol.responses import Counted
from headrace.errors import HeadraceError

MOST_ROWS = 50_000
"""Limit on the rows of one commit; a single larger write is committed alone."""


@dataclass(frozen=True)
class _Asked:
    """Pending write of a client. id: identifies a repeated write. time: set once the write is durable."""

    changes: dict[str, list[Counted]]
    id: bytes
    time: asyncio.Future[int]

    @property
    def rows(self) -> int:
        return sum(map(len, self.changes.values()))

    def fail(self, error: BaseException) -> None:
        if not self.time.done():
            self.time.set_exception(error)


class GroupCommit:
    """Writes of all clients, committed one group after another.

    open_collections: opens the store, in the thread that appends.
    fenced: called when a later controller has taken over.
    """

    def __init__(
        self,
        controller: Controller,
        open_collections: Callable[[], Collections],
        fenced: Callable[[StaleEpoch], None],
    ) -> None:
        self._controller = controller
        self._open = open_collections
        self._fenced = fenced
        self._store: Collections | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headrace append")
        self._waiting: list[_Asked] = []
        self._asked: dict[bytes, _Asked] = {}
        self._committing: asyncio.Task[None] | None = None

    def write(self, changes: dict[str, list[Counted]], id: bytes) -> asyncio.Future[int]:
        """Queue a write, and return a future of its time, set once it is durable, or of its error.

        A write repeated with the same id, because an answer was lost, is done once.
        """
        again = self._asked.get(id)
        if again is not None:
            return again.time
        asked = _Asked(changes, id, asyncio.get_running_loop().create_future())
        self._asked[id] = asked
        asked.time.add_done_callback(lambda _: self._asked.pop(id, None))
        self._waiting.append(asked)
        if self._committing is None:
            self._committing = asyncio.create_task(self._commit_all())
        return asked.time

    async def close(self) -> None:
        """Finish the current commit, cancel the queued writes, and close the store."""
        for asked in self._waiting:
            asked.time.cancel()
        self._waiting.clear()
        if self._committing is not None:
            await self._committing
        if self._store is not None:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._store.close)
        self._thread.shutdown()

    async def _commit_all(self) -> None:
        try:
            while self._waiting:
                await self._commit(self._next_group())
        finally:
            self._committing = None

    def _next_group(self) -> list[_Asked]:
        rows = 0
        for count, asked in enumerate(self._waiting):
            rows += asked.rows
            if count and rows > MOST_ROWS:
                break
        else:
            count = len(self._waiting)
        group, self._waiting = self._waiting[:count], self._waiting[count:]
        return group

    async def _commit(self, group: list[_Asked]) -> None:
        try:
            group = [asked for asked in group if not self._was_done(asked)]
            if not group:
                return
            time = await self._committed(group)
        except StaleEpoch as error:
            for asked in group:
                asked.fail(error)
            self._fenced(error)
        except HeadraceError as error:
            if len(group) == 1:
                group[0].fail(error)
                return
            # Only one of them is at fault, so retry each by itself.
            for asked in group:
                await self._commit([asked])
        except Exception as error:
            for asked in group:
                asked.fail(error)
        else:
            for asked in group:
                if not asked.time.done():
                    asked.time.set_result(time)

    def _was_done(self, asked: _Asked) -> bool:
        """Whether the write was already durable; if so, set its time."""
        time = self._controller.time_of_write(asked.id)
        if time is not None and not asked.time.done():
            asked.time.set_result(time)
        return time is not None

    async def _committed(self, group: Sequence[_Asked]) -> int:
        changes: dict[str, list[Counted]] = {}
        for asked in group:
            for name, rows in asked.changes.items():
                changes.setdefault(name, []).extend(rows)
        write = self._controller.begin_write(changes, [asked.id for asked in group])
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._append, write.appends)
        except Exception:
            # Any exception at all: the next write may begin only after this one is settled.
            if not self._controller.fail_write(write):
                raise
        else:
            self._controller.end_write(write)
        return write.time

    def _append(self, appends: Sequence[CollectionAppend]) -> None:
        # Runs in the executor's only thread: a store must be used by the thread that opened it.
        if self._store is None:
            self._store = self._open()
        self._store.append(appends)
