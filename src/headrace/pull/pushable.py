"""`pushable`: a source that other code pushes values into."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from headrace.errors import QueueFull, SourceLocation
from headrace.pull.argument_checks import IN_A_TASK, check_integer, synchronous_check
from headrace.pull.errors import AlreadyUsed, WrongThread
from headrace.pull.module_context import Module
from headrace.pull.modules import PullSource, SourcePart
from headrace.pull.protocol import AnswerTo, BatchRead, End

Admitted = Callable[[bool], object]
"""Callback for a value that waited for room: True if it was added, False if the stream ended first."""


class PushQueue:
    """Queue of at most `bound` values; further values wait for room, in order.

    Invariant: values wait for room only while the queue is full; `_ring` is set only while it is empty.
    """

    def __init__(self, bound: int | None) -> None:
        self.bound = bound
        self._lock = threading.Lock()
        self._values: deque[Any] = deque()
        self._waiting: deque[tuple[Any, Admitted]] = deque()
        self._ring: Callable[[], object] | None = None
        self._end: End | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._values)

    @property
    def ended(self) -> bool:
        """Whether the queue accepts no further values."""
        return self._closed or self._end is not None

    @property
    def full(self) -> bool:
        return self.bound is not None and len(self._values) >= self.bound

    def push(self, value: Any, admitted: Admitted | None = None) -> bool | None:
        """Add a value. Returns True if added, False if the queue has ended, None if there is no room.

        admitted: wait for room, and call this once the value is added or refused.
        """
        with self._lock:
            if self.ended:
                return False
            if self.full:
                if admitted is not None:
                    self._waiting.append((value, admitted))
                return None
            self._values.append(value)
            ring = self._answered()
        if ring is not None:
            ring()
        return True

    def give_up(self, admitted: Admitted) -> None:
        """Withdraw the waiting value that was pushed with this callback."""
        with self._lock:
            self._waiting = deque(entry for entry in self._waiting if entry[1] is not admitted)

    def end(self, end: End) -> None:
        """End the stream after the values pushed so far. Only the first call counts."""
        with self._lock:
            if self.ended:
                return
            self._end = end
            ring = self._answered()
        if ring is not None:
            ring()

    def _answered(self) -> Callable[[], object] | None:
        ring, self._ring = self._ring, None
        return ring

    def take(self, most: int, expect: Callable[[], Callable[[], object]]) -> list[Any] | End | None:
        """Take 1 to `most` values. Returns the end after the last one, or None if nothing is available yet.

        expect: creates a function that the pushing thread calls once when a value arrives.
        """
        with self._lock:
            batch = [self._values.popleft() for _ in range(min(most, len(self._values)))]
            admitted: list[Admitted] = []
            while self._waiting and not self.full:
                value, callback = self._waiting.popleft()
                self._values.append(value)
                admitted.append(callback)
            if not batch and self._end is None and self._ring is None:
                self._ring = expect()
        for callback in admitted:
            callback(True)
        return batch or self._end

    def close(self) -> None:
        """Refuse further values, and drop the queued ones."""
        with self._lock:
            self._closed = True
            self._values.clear()
            waiting, self._waiting = self._waiting, deque()
            ring = self._answered()
        for _value, callback in waiting:
            callback(False)
        if ring is not None:
            ring()


OnClose = Callable[[Exception | None], object]


def pushable(
    *, bound: int | None = 1024, on_close: OnClose | None = None, thread_safe: bool = False
) -> Pushable:
    """Create a source with a handle to push values into it, before and while a pipeline reads from it.

    bound:       limit on values waiting to be asked for; None for unlimited.
    on_close:    called once when the stream ends: with None if it was ended or aborted, with the error if it
                 failed; before the end is answered, and so before an abort is confirmed.
    thread_safe: whether threads other than the pipeline's use the handle. The pipeline then waits for them in
                 an event loop (`run()`, or awaited).

    Only one run may read from it; a second fails with `AlreadyUsed`.

    >>> from headrace.pull import collect, pull
    >>> letters = pushable()
    >>> letters.push("a"), letters.push("b"), letters.end(), letters.push("too late")
    (True, True, None, False)
    >>> pull(letters, collect()).run()
    ['a', 'b']
    """
    location = SourceLocation.of_caller()
    if bound is not None:
        check_integer("pushable", "bound", bound, least=1)
    if on_close is not None:
        on_close = synchronous_check("pushable", on_close, fix=IN_A_TASK).calling(on_close)
    gate = _Gate(PushQueue(bound), location, on_close, thread_safe)
    return Pushable(SourcePart("pushable", location, gate.open, batches=True), gate)


class Pushable(PullSource):
    """Source that is also the handle to push into it; see `pushable`.

    Values pushed after `end`, or after the stream was aborted or failed, are dropped, and `push` returns
    False.
    """

    __slots__ = ("_gate",)
    _gate: _Gate

    def __init__(self, part: SourcePart, gate: _Gate) -> None:
        super().__init__(part)
        object.__setattr__(self, "_gate", gate)

    @property
    def waiting(self) -> int:
        """Number of values not yet asked for."""
        return len(self._gate.feed)

    @property
    def ended(self) -> bool:
        """Whether the source was ended or stopped, and accepts no further values."""
        return self._gate.feed.ended

    def push(self, value: Any) -> bool:
        """Add a value. Returns False if the stream has ended; raises `QueueFull` if there is no room."""
        taken = self._gate.feed_here().push(value)
        if taken is None:
            raise QueueFull(
                f"{self._gate.feed.bound} values wait in pushable(), which is its bound",
                where=[SourceLocation.of_caller(), self.part.location],
                why="Values are pushed faster than they are requested.",
                fix="await handle.pushed(value), or handle.try_push(value) and wait, or raise bound=",
                bound=self._gate.feed.bound,
            )
        return taken

    def try_push(self, value: Any) -> bool:
        """Add a value. Returns False if there is no room or the stream has ended (see `ended`)."""
        return bool(self._gate.feed_here().push(value))

    async def pushed(self, value: Any) -> bool:
        """Add a value as soon as there is room, after those already waiting. Returns False if the stream has
        ended.

        If cancelled while waiting, it adds nothing.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        room: asyncio.Future[bool] = loop.create_future()

        def settle(taken: bool) -> None:
            if not room.done():
                room.set_result(taken)

        admitted = partial(loop.call_soon_threadsafe, settle)
        taken = self._gate.feed_here().push(value, admitted)
        if taken is not None:
            return taken
        try:
            return await room
        finally:
            self._gate.feed.give_up(admitted)

    def put(self, value: Any) -> bool:
        """Add a value from another thread, blocking until there is room. Returns False if the stream has
        ended.
        """
        settled, outcome = threading.Event(), list[bool]()

        def admitted(taken: bool) -> None:
            outcome.append(taken)
            settled.set()

        taken = self._gate.feed_elsewhere().push(value, admitted)
        if taken is not None:
            return taken
        try:
            settled.wait()
        finally:
            self._gate.feed.give_up(admitted)
        return outcome[0]

    def end(self, error: Exception | None = None) -> None:
        """End the stream, or fail it with `error`, after the values pushed before. Later calls have no
        effect.
        """
        self._gate.feed_here().end(error or True)


class _Gate:
    """State of one pushable: its queue, and the run that reads from it."""

    def __init__(
        self, feed: PushQueue, location: SourceLocation, on_close: OnClose | None, thread_safe: bool
    ) -> None:
        self.feed = feed
        self.on_close = on_close
        self.thread_safe = thread_safe
        self._location = location
        self._thread: int | None = None

    def open(self, module: Module) -> BatchRead:
        if self._thread is not None:
            raise AlreadyUsed(
                "pushable() is read by a second run",
                where=[self._location],
                why="Its values go to the first run that reads from it.",
                fix="make a new pushable() for each run",
            )
        self._thread = threading.get_ident()
        reader = _Reader(module, self)
        module.cancel_at_end(reader)
        return reader.read

    def feed_here(self) -> PushQueue:
        """Return the queue for a call that does not block."""
        if not self.thread_safe and self._thread not in (None, threading.get_ident()):
            raise WrongThread(
                "pushable() is used from a thread other than that of its pipeline",
                where=[SourceLocation.of_caller(), self._location],
                why="Nothing would wake the pipeline, and two threads would work on it at once.",
                fix="pushable(thread_safe=True)",
            )
        return self.feed

    def feed_elsewhere(self) -> PushQueue:
        """Return the queue for a call that blocks its thread."""
        if self._thread == threading.get_ident():
            raise WrongThread(
                "put() would block the thread that its pipeline works in",
                where=[SourceLocation.of_caller(), self._location],
                why="Room is made when the pipeline asks for values, which it could not do any more.",
                fix="await handle.pushed(value)",
            )
        return self.feed_here()


class _Reader:
    def __init__(self, module: Module, gate: _Gate) -> None:
        self._module = module
        self._gate = gate
        self._asks: deque[tuple[AnswerTo, int]] = deque()

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._end(abort, answer)
        else:
            self._asks.append((answer, most))
            self._give()

    def _give(self) -> None:
        while self._asks:
            answer, most = self._asks[0]
            found = self._gate.feed.take(most, self._expect)
            if found is None:
                return
            self._asks.popleft()
            if isinstance(found, list):
                answer(None, found)
            else:
                self._asks.clear()
                self._end(found, answer)

    def cancel(self) -> None:
        """Close the queue when its module ends or its run is abandoned, so that nobody waits for room."""
        self._asks.clear()
        self._gate.feed.close()

    def _expect(self) -> Callable[[], object]:
        if self._gate.thread_safe:
            return partial(self._module.from_thread(), self._give)
        return partial(self._module.enter, self._give)

    def _end(self, end: End, answer: AnswerTo) -> None:
        self._gate.feed.close()
        if self._gate.on_close is not None:
            self._gate.on_close(end if isinstance(end, Exception) else None)
        answer(end)
