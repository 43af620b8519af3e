"""notify: values pushed to any number of sources."""

from __future__ import annotations

from collections import deque
from typing import Any

from penstock.errors import QueueFull, SourceLocation
from penstock.pull.module import Module
from penstock.pull.options import whole
from penstock.pull.pieces import Source
from penstock.pull.protocol import AnswerTo, BatchRead, End


def notify(*, bound: int | None = 1024) -> Notify:
    """A handle that gives each value to everybody who listens at that time.

    bound: values that may wait for one listener; None: any number. A listener with more is too slow: it gives
           those that wait and fails with `QueueFull`. The others, and who pushes, notice nothing.

    >>> from penstock.pull import collect, pull
    >>> news = notify()
    >>> early = pull(news.listen(), collect()).start()
    >>> news.push(1)
    >>> late = pull(news.listen(), collect()).start()
    >>> news.push(2), news.end()
    (None, None)
    >>> early.result(), late.result()
    ([1, 2], [2])
    """
    if bound is not None:
        whole("notify", "bound", bound, least=1)
    return Notify(bound, SourceLocation.of_caller())


class Notify:
    """See `notify`. To be used in the thread of the pipelines that listen."""

    def __init__(self, bound: int | None, location: SourceLocation) -> None:
        self._bound = bound
        self._location = location
        self._listeners: dict[_Listener, None] = {}
        self._end: End | None = None

    @property
    def listeners(self) -> int:
        """How many listen now."""
        return len(self._listeners)

    def listen(self) -> Source:
        """What is pushed from the moment on in which a run opens this source, until `end`.

        An abort ends the listening, and is confirmed at once. After `end` there is only the end.
        """
        return Source.of("notify", self._open, batches=True)

    def push(self, value: Any) -> None:
        """Give a value to all who listen; after `end`, to nobody."""
        for listener in tuple(self._listeners):
            listener.module.enter(listener.hear, value)

    def end(self, error: Exception | None = None) -> None:
        """All who listen get what waits for them, and then done or the error; all who will, only that.

        Later calls do nothing.
        """
        if self._end is None:
            self._end = error or True
            for listener in tuple(self._listeners):
                listener.module.enter(listener.hear_end, self._end)

    def _open(self, module: Module) -> BatchRead:
        listener = _Listener(self, module)
        module.hold(listener)
        if self._end is None:
            self._listeners[listener] = None
        else:
            listener.hear_end(self._end)
        return listener.read

    def leave(self, listener: _Listener) -> None:
        """Do not tell it anything any more."""
        self._listeners.pop(listener, None)

    def too_slow(self, waiting: int) -> QueueFull | None:
        """What a listener fails with for which so many values wait, if that is too many."""
        if self._bound is None or waiting <= self._bound:
            return None
        return QueueFull(
            f"a listener of notify() is more than {self._bound} values behind, which is the bound",
            where=[self._location],
            why="They are pushed faster than it asks for them, and no listener holds up the others.",
            fix="a larger bound=; or drop values in front of what is slow",
            bound=self._bound,
        )


class _Listener:
    """What one run has not taken yet."""

    def __init__(self, notify: Notify, module: Module) -> None:
        self.module = module
        self._notify = notify
        self._values: deque[Any] = deque()
        self._asks: deque[tuple[AnswerTo, int]] = deque()
        self._end: End | None = None

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._asks.clear()
            self._values.clear()
            self.cancel()
            answer(abort)
            return
        self._asks.append((answer, most))
        self._give()

    def cancel(self) -> None:
        """Its module has ended, or its run was given up."""
        self._notify.leave(self)

    def hear(self, value: Any) -> None:
        if self._end is not None:
            return
        self._values.append(value)
        self._give()
        error = self._notify.too_slow(len(self._values))
        if error is not None:
            self._values.pop()
            self.hear_end(error)

    def hear_end(self, end: End) -> None:
        self.cancel()
        self._end = self._end or end
        self._give()

    def _give(self) -> None:
        while self._asks and self._values:
            answer, most = self._asks.popleft()
            answer(None, [self._values.popleft() for _ in range(min(most, len(self._values)))])
        if self._asks and self._end is not None:
            self._asks.popleft()[0](self._end)
