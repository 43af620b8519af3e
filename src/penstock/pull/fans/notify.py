"""notify: values pushed to any number of sources."""

from __future__ import annotations

from typing import Any

from penstock.errors import QueueFull, SourceLocation
from penstock.pull.buffer import Buffer
from penstock.pull.handles import Registry
from penstock.pull.module import Module
from penstock.pull.options import whole
from penstock.pull.pieces import Source
from penstock.pull.protocol import AnswerTo, BatchRead, End
from penstock.pull.runtime import Cancellable


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
        self._listeners: Registry[_Listener] = Registry()
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
        for listener in self._listeners:
            listener.module.enter(listener.hear, value)

    def end(self, error: Exception | None = None) -> None:
        """All who listen get what waits for them, and then done or the error; all who will, only that.

        Later calls do nothing.
        """
        if self._end is None:
            self._end = error or True
            for listener in self._listeners:
                listener.module.enter(listener.hear_end, self._end)

    def _open(self, module: Module) -> BatchRead:
        listener = _Listener(self, module)
        if self._end is None:
            listener.entry = self._listeners.add(module, listener)
        else:
            listener.hear_end(self._end)
        return listener.read

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
    """The values that one run has not taken yet."""

    entry: Cancellable | None = None

    def __init__(self, notify: Notify, module: Module) -> None:
        self.module = module
        self._notify = notify
        self._buffer = Buffer()

    def read(self, abort: End | None, answer: AnswerTo, most: int) -> None:
        if abort is not None:
            self._buffer.clear()
            self._leave()
            answer(abort)
        else:
            self._buffer.asks.append((answer, most))
            self._buffer.give()

    def hear(self, value: Any) -> None:
        buffer = self._buffer
        if buffer.end is not None:
            return
        buffer.values.append(value)
        buffer.give()
        error = self._notify.too_slow(len(buffer.values))
        if error is not None:
            buffer.values.pop()
            self.hear_end(error)

    def hear_end(self, end: End) -> None:
        self._leave()
        self._buffer.end = self._buffer.end or end
        self._buffer.give()

    def _leave(self) -> None:
        if self.entry is not None:
            self.entry.cancel()
