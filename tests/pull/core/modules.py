"""Modules for tests of the core, written by hand in the callback form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace.pull import PullSink, PullSource, PullTransformer
from headrace.pull.edge import PullEdge
from headrace.pull.module_context import Module
from headrace.pull.protocol import AnswerTo, End


class Manual:
    """A source that answers when the test says so; `requests` holds what it was told, in order."""

    def __init__(self, **options: Any) -> None:
        self.requests: list[End | None] = []
        self.answers: list[AnswerTo] = []
        self.module: Module | None = None
        self.source = PullSource.of("manual", self._open, **options)

    def _open(self, module: Module) -> Callable[..., None]:
        self.module = module

        def read(abort: End | None, answer: AnswerTo) -> None:
            self.requests.append(abort)
            self.answers.append(answer)

        return read

    def answer(self, index: int, end: End | None, value: Any = None) -> None:
        """Answer the request of this number, from 0."""
        assert self.module is not None
        self.module.enter(self.answers[index], end, value)


class Hand:
    """A sink that the test reads with: `edge` is its input, `heard` what it was answered."""

    def __init__(self) -> None:
        self.heard: list[tuple[str, Any]] = []
        self.edge: PullEdge | None = None
        self.module: Module | None = None
        self.sink = PullSink.of("hand", self._open)

    def _open(self, module: Module, edge: PullEdge) -> None:
        self.module, self.edge = module, edge

    def request(self, name: str, abort: End | None = None) -> None:
        """Make a request; its answer is noted under `name`."""
        assert self.edge is not None

        def answered(end: End | None, value: Any = None, /) -> None:
            self.heard.append((name, value if end is None else end))

        self.edge(abort, answered)

    def indicate(self, abort: End) -> None:
        assert self.edge is not None
        self.edge(abort)


def delay(seconds: float, name: str = "delay") -> PullTransformer:
    """Holds each value for some seconds, one at a time; asks upstream for every ask at once."""

    def open(module: Module, edge: PullEdge) -> Callable[..., None]:
        waiting: list[tuple[AnswerTo, Any]] = []

        def read(abort: End | None, answer: AnswerTo) -> None:
            def got(end: End | None, value: Any = None, /) -> None:
                if end is not None:
                    waiting_ends.append((answer, end))
                    settle()
                    return
                waiting.append((answer, value))
                if len(waiting) == 1:
                    module.later(seconds, fire)

            edge(abort, got)

        waiting_ends: list[tuple[AnswerTo, End]] = []

        def settle() -> None:
            if not waiting:
                for answer, end in waiting_ends:
                    answer(end)
                waiting_ends.clear()

        def fire() -> None:
            answer, value = waiting.pop(0)
            answer(None, value)
            if waiting:
                module.later(seconds, fire)
            settle()

        return read

    return PullTransformer.of(name, open, width=1)
