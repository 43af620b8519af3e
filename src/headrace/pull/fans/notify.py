"""`notify`: broadcast pushed values to any number of sources."""

from __future__ import annotations

from typing import Any

from headrace.errors import QueueFull, SourceLocation
from headrace.pull.argument_checks import check_integer
from headrace.pull.ask_buffer import Buffer
from headrace.pull.module_context import Module
from headrace.pull.modules import Source
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, BatchRead, End
from headrace.pull.running_modules import Registry


def notify(*, bound: int | None = 1024) -> Notify:
    """Create a handle that delivers each value to all current listeners.

    bound: limit on values waiting for one listener; None for unlimited. A listener over the limit emits the
           waiting values and then fails with `QueueFull`, without affecting the others or the caller.

    >>> from headrace.pull import collect, pull
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
        check_integer("notify", "bound", bound, least=1)
    return Notify(bound, SourceLocation.of_caller())


class Notify:
    """Broadcast handle; see `notify`. Use it only in the listening pipelines' thread."""

    def __init__(self, bound: int | None, location: SourceLocation) -> None:
        self._bound = bound
        self._location = location
        self._listeners: Registry[_Listener] = Registry()
        self._end: End | None = None

    @property
    def listeners(self) -> int:
        """Number of current listeners."""
        return len(self._listeners)

    def listen(self) -> Source:
        """Create a source of values pushed from the moment a run opens it, until `end`.

        An abort stops listening, and is confirmed immediately. After `end`, the source is empty.
        """
        return Source.of("notify", self._open, batches=True)

    def push(self, value: Any) -> None:
        """Deliver a value to all listeners; after `end`, to nobody."""
        for listener in self._listeners:
            listener.module.enter(listener.hear, value)

    def end(self, error: Exception | None = None) -> None:
        """End all current and future listeners, after their waiting values, with done or the error.

        Later calls have no effect.
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
        """Build the failure of a listener with too many waiting values; None if they are within the bound."""
        if self._bound is None or waiting <= self._bound:
            return None
        return QueueFull(
            f"a listener of notify() is more than {self._bound} values behind, which is the bound",
            where=[self._location],
            why="Values are pushed faster than it requests them, and no listener holds up the others.",
            fix="a larger bound=; or drop values in front of what is slow",
            bound=self._bound,
        )


class _Listener:
    """Values not yet taken by one listening run."""

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
