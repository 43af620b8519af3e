"""A borrower that does what the test says."""

from __future__ import annotations

from collections import deque
from typing import Any

from headrace.pull import PullTransformer
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End


class Hand:
    """values: that it was lent and has not answered. end: of its input. stopped: how it was told to."""

    def __init__(self, *, confirms: bool = True) -> None:
        self.values: list[Any] = []
        self.end: End | None = None
        self.stopped: End | None = None
        self.confirms = confirms
        self.asks: deque[AnswerTo] = deque()
        self.module: Module | None = None
        self.edge: Any = None
        self.stop: AnswerTo | None = None
        self.transformer = PullTransformer.of("hand", self._open)

    def _open(self, module: Module, edge: PullEdge) -> Any:
        self.module, self.edge = module, edge

        def read(abort: End | None, answer: AnswerTo) -> None:
            if abort is None:
                self.asks.append(answer)
                return
            self.stopped, self.stop = abort, answer
            if self.confirms:
                self.confirm()

        return read

    def confirm(self) -> None:
        """Confirm that it was told to stop."""
        assert self.module is not None
        assert self.stop is not None
        self.module.enter(self.edge, self.stopped, self.stop)

    def read(self) -> None:
        """Ask for a value."""
        assert self.module is not None

        def got(end: End | None, value: Any = None, /) -> None:
            if end is None:
                self.values.append(value)
            else:
                self.end = end

        self.module.enter(self.edge, None, got)

    def stop_reading(self) -> None:
        """Abort its input, and be still there."""
        assert self.module is not None
        self.module.enter(self.edge, True, lambda _end, _value=None: None)

    def answer(self, result: Any) -> None:
        """Give the result of the oldest value."""
        assert self.module is not None
        self.values.pop(0)
        self.module.enter(self.asks.popleft(), None, result)

    def finish(self, end: End = True) -> None:
        """Answer the oldest ask by an end."""
        assert self.module is not None
        self.module.enter(self.asks.popleft(), end)

    def fail(self, error: Exception) -> None:
        assert self.module is not None
        self.module.enter(self._raise, error)

    def _raise(self, error: Exception) -> None:
        raise error
