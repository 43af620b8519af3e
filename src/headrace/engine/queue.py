"""Queues of rows fed to sources that wait for a tick."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from headrace.errors import BadInput, QueueFull, SourceLocation
from headrace.expr.types import Rows

PerSource = int | Mapping[str, int] | None
"""A number of rows, for all sources or by source name; None or a missing name means no limit."""

QUEUE_ROWS = 100_000
"""Default capacity of a source's queue, in rows."""


class SourceQueue:
    """First-in, first-out queue of one source.

    limit: capacity in rows; None if unlimited. location: of the source, for errors.
    """

    def __init__(self, source: str, limit: int | None, location: SourceLocation) -> None:
        self.source = source
        self.limit = limit
        self._location = location
        self._rows: deque[tuple[Any, ...]] = deque()

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def free_capacity(self) -> int | None:
        """Free capacity in rows; None if unlimited."""
        return None if self.limit is None else self.limit - len(self._rows)

    def check_room(self, rows: Rows) -> None:
        """Raise `QueueFull` if these rows exceed the free capacity."""
        if self.limit is not None and len(self._rows) + len(rows) > self.limit:
            raise QueueFull(
                f"source {self.source!r} has room for {self.free_capacity} more rows, "
                f"and {len(rows)} were fed",
                where=[self._location],
                why=f"{len(self._rows)} rows wait for a tick, and queue_rows allows {self.limit}. "
                "None of these rows was taken.",
                fix="run a tick (run_tick, run_available), wait with `await engine.feed_when_free(...)`, "
                "or raise queue_rows",
                source=self.source,
                queued=len(self._rows),
                limit=self.limit,
                fed=len(rows),
            )

    def add(self, rows: Rows) -> None:
        self._rows.extend(rows)

    def take(self, limit: int | None) -> Rows:
        """Remove and return the first `limit` rows, or all."""
        if limit is None or limit >= len(self._rows):
            rows = list(self._rows)
            self._rows.clear()
            return rows
        rows = list(islice(self._rows, limit))
        for _ in rows:
            self._rows.popleft()
        return rows


def limit_for(given: PerSource, source: str) -> int | None:
    """Limit set for a source; None if unset."""
    return given.get(source) if isinstance(given, Mapping) else given


def check_limits(what: str, given: PerSource, sources: Mapping[str, object]) -> None:
    """Raise `BadInput` for a limit below 1 or an unknown source. what: the argument's name."""
    numbers = given if isinstance(given, Mapping) else {} if given is None else {"": given}
    for name, number in numbers.items():
        at = f"{what}[{name!r}]" if name else what
        if name and name not in sources:
            raise BadInput(
                f"{what} names {name!r}, which is no source of the flow",
                fix=f"its sources are {', '.join(map(repr, sources)) or 'none'}",
                name=name,
            )
        if not isinstance(number, int) or isinstance(number, bool) or number < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise BadInput(f"{at} is {number!r}", fix="give 1 or more")


class Queues:
    """Queues of an engine, by source. Only one thread, including its event loop, may use them.

    sources: their places, by name. bounded: those whose rows belong to one tick: no limit holds for them.
    tick_rows, queue_rows: how many rows a tick takes, and how many may wait.

    Raises `BadInput` for invalid limits and unknown sources.
    """

    def __init__(
        self,
        sources: Mapping[str, SourceLocation],
        bounded: Collection[str],
        tick_rows: PerSource,
        queue_rows: PerSource,
    ) -> None:
        check_limits("tick_rows", tick_rows, sources)
        check_limits("queue_rows", queue_rows, sources)
        self._queues: dict[str, SourceQueue] = {}
        self._tick_rows: dict[str, int | None] = {}
        for name, location in sources.items():
            whole = name in bounded
            waiting = None if whole else limit_for(queue_rows, name) or QUEUE_ROWS
            self._queues[name] = SourceQueue(name, waiting, location)
            self._tick_rows[name] = None if whole else limit_for(tick_rows, name)
        self._waiting: list[asyncio.Future[None]] = []

    def __bool__(self) -> bool:
        """Return whether any row is queued."""
        return any(self._queues.values())

    def lengths(self) -> dict[str, int]:
        return {name: len(queue) for name, queue in self._queues.items()}

    def add(self, inputs: Mapping[str, Rows]) -> None:
        """Queue all of these rows. Raises `QueueFull` without queueing any."""
        for name, rows in inputs.items():
            self._queues[name].check_room(rows)
        for name, rows in inputs.items():
            self._queues[name].add(rows)

    def add_some(self, name: str, rows: Rows) -> Rows:
        """Queue as many rows as fit; return the others."""
        queue = self._queues[name]
        now = len(rows) if queue.free_capacity is None else queue.free_capacity
        queue.add(rows[:now])
        return rows[now:]

    def take(self) -> dict[str, Rows]:
        """Remove and return the rows of a tick, and wake those waiting for capacity."""
        taken = {name: queue.take(self._tick_rows[name]) for name, queue in self._queues.items() if queue}
        self.wake()
        return taken

    async def wait_until_taken(self) -> None:
        """Wait until rows have been taken or `wake` is called."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():  # who was cancelled waits no more
                future.set_result(None)
