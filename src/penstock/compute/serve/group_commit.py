"""Group commit: writes that arrive during a commit are committed together in the next.

So a slow disk costs each client a wait, and none of them the others' waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from penstock.compute.collections.store import Append, Collections
from penstock.compute.controller.controller import Controller
from penstock.compute.errors import StaleEpoch
from penstock.compute.protocol.responses import Counted
from penstock.errors import PenstockError

MOST_ROWS = 50_000
"""Rows of one commit: more wait for the next, unless they are of one write."""


@dataclass(frozen=True)
class _Asked:
    """A client's write. id: recognises a repeated write. time: set when it is durable."""

    changes: dict[str, list[Counted]]
    id: bytes
    time: asyncio.Future[int]

    @property
    def rows(self) -> int:
        return sum(map(len, self.changes.values()))

    def fail(self, error: BaseException) -> None:
        if not self.time.done():
            self.time.set_exception(error)


class Writing:
    """The writes of all clients, one commit after the other.

    open_collections: the store, opened in the thread that appends.
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
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="penstock append")
        self._waiting: list[_Asked] = []
        self._asked: dict[bytes, _Asked] = {}
        self._committing: asyncio.Task[None] | None = None

    def write(self, changes: dict[str, list[Counted]], id: bytes) -> asyncio.Future[int]:
        """Write, and return the time once it is durable. Raises the error of a failed write.

        One that is asked for again, because an answer was lost, is done once.
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
        """End the commit that is under way; those that wait fail."""
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
        except PenstockError as error:
            if len(group) == 1:
                group[0].fail(error)
                return
            # One of them is at fault, and the others shall not suffer for it.
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
        """Whether it was durable before; then its time is set."""
        time = self._controller.written(asked.id)
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
            # Of whatever kind: the next write may begin only when this one has ended.
            if not self._controller.fail_write(write):
                raise
        else:
            self._controller.end_write(write)
        return write.time

    def _append(self, appends: Sequence[Append]) -> None:
        # In the one thread of its own: a store is used by the thread that has opened it.
        if self._store is None:
            self._store = self._open()
        self._store.append(appends)
