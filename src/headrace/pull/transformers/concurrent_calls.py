"""Concurrent calls: common base of transformers that make several external calls at once, one per value."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from headrace.pull.edge import Edge
from headrace.pull.pipeline_runtime import Cancellable
from headrace.pull.protocol import AnswerTo, End, attach_close_error, failure

Done = Callable[[Exception | None, Any], object]
"""`done(error, result)`: reports the outcome of a call."""

Start = Callable[[Any, Done], Cancellable]
"""`start(value, done)` begins a call; `done(error, result)` is called once, later, also after `cancel`."""


@dataclass(eq=False, slots=True)
class _Call:
    """Value with the result of its call, once done."""

    value: Any
    done: bool = False
    error: Exception | None = None
    result: Any = None


class ConcurrentCalls:
    """Running transformer. Each ask is passed upstream at once; values wait while `width` calls are running.

    ordered: emit results in the order of the values; otherwise in order of completion.
    cancel:  cancel running calls when the stream stops; otherwise they are awaited. The module confirms only
             once all are over.

    A failed call has its place among the results: the results before it are answered, then upstream is failed
    with the error, and once the other calls are over, downstream gets it.
    """

    def __init__(self, edge: Edge, start: Start, width: int, *, ordered: bool, cancel: bool = False) -> None:
        self._edge = edge
        self._start = start
        self._width = width
        self._ordered = ordered
        self._cancel = cancel
        self._asks: deque[AnswerTo] = deque()
        self._waiting: deque[_Call] = deque()
        self._running: dict[_Call, Cancellable | None] = {}
        self._line: deque[_Call] = deque()  # the next answers: all calls, or if unordered, those done
        self._failing = False
        self._end: End | None = None  # end of upstream by itself
        self._cause: End | None = None  # reason for closing
        self._closed: End | None = None  # end confirmed by upstream

    def read(self, abort: End | None, answer: AnswerTo) -> None:
        if abort is not None:
            if self._cause is None:  # otherwise a call has failed, and waiting asks get the failure first
                if isinstance(self._end, Exception):
                    self._asks[0](self._end)  # distinguishes it from a failure of closing
                self._asks.clear()
            self._asks.append(answer)
            self._close(abort)
        else:
            self._asks.append(answer)
            if self._cause is None and not self._failing:
                self._edge(None, self._got)

    def _got(self, end: End | None, value: Any = None, /) -> None:
        if self._cause is not None:
            return
        if end is not None:
            self._end = end
            self._answer()
            return
        call = _Call(value)
        self._waiting.append(call)
        if self._ordered:
            self._line.append(call)
        self._begin()

    def _begin(self) -> None:
        while self._waiting and len(self._running) < self._width and not self._failing:
            call = self._waiting.popleft()
            self._running[call] = None
            self._running[call] = self._start(call.value, partial(self._done, call))

    def _done(self, call: _Call, error: Exception | None, result: Any) -> None:
        del self._running[call]
        if self._cause is not None:
            self._note(error)
            self._confirm()
            return
        call.done, call.error, call.result = True, error, result
        self._failing = self._failing or error is not None
        if not self._ordered:
            self._line.append(call)
        self._begin()
        self._answer()

    def _answer(self) -> None:
        asks, line = self._asks, self._line
        while line and line[0].done:
            call = line.popleft()
            if call.error is not None:
                self._close(call.error)
                return
            asks.popleft()(None, call.result)
        if self._end is not None and not self._running:
            asks.popleft()(self._end)

    def _note(self, error: Exception | None) -> None:
        """Attach an unwanted value's error, if any, to the stream's error."""
        if error is not None and isinstance(self._cause, Exception):
            attach_close_error(self._cause, error)

    def _close(self, cause: End) -> None:
        if self._cause is not None:
            return
        self._cause = cause
        self._waiting.clear()
        for call in self._line:
            self._note(call.error)
        if self._cancel:
            for running in tuple(self._running.values()):
                if running is not None:
                    running.cancel()
        if self._end is not None:
            self._stopped(self._end)
        else:
            self._edge(cause, self._stopped)

    def _stopped(self, end: End | None, _value: Any = None, /) -> None:
        self._closed = end
        self._confirm()

    def _confirm(self) -> None:
        if self._closed is None or self._running:
            return
        end: End = self._closed
        if isinstance(self._cause, Exception):
            end = failure(self._cause, end)
        asks, self._asks = self._asks, deque()
        for answer in asks:
            answer(end)
