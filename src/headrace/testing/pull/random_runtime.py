"""`RandomRuntime`: run pipelines in a random order determined by a seed."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from headrace.pull.pipeline_runtime import DEEPEST, Cancellable, Job, foreign_cancellation_error
from headrace.testing.pull.virtual_runtime import VirtualRuntime

_AT_ONCE = 0.7
"""Probability that a request is passed up immediately, if it may be."""

_TASKS_BETWEEN = 0.1
"""Probability that tasks get a turn while the pipeline has events to process."""

_TIME_BETWEEN = 0.02
"""Probability that time passes while the pipeline has events to process, as if these took long."""


class RandomRuntime(VirtualRuntime):
    """`VirtualRuntime` that processes events in a random order.

    Events posted on one lane keep their order: the answers of an edge, the requests of an edge,
    calls from user code, due timers. All other events may overtake each other: those of another edge,
    the start and the end of a task.

    seed: determines the order. The same seed and pipeline give the same order; with threads, processes or
          sockets, only as far as these are quick.
    """

    def __init__(
        self, seed: int, *, passing: bool = True, after_each: Callable[[], object] | None = None
    ) -> None:
        super().__init__(passing=passing, after_each=after_each)
        self.seed = seed
        self.replay = f"in a random order, again with seed={seed}"
        self._random = random.Random(seed)
        self._lanes: dict[object, deque[Job]] = {}
        self._ready: list[object] = []

    def post(self, lane: object, call: Callable[..., object], *args: Any) -> None:
        self._put(("down", lane), call, args)
        if not self._busy:
            self.work()

    def descend(self, lane: object, call: Callable[..., object], *args: Any) -> None:
        above = ("up", lane)
        at_once = self._busy and self._depth < DEEPEST and above not in self._lanes
        if at_once and self._random.random() < _AT_ONCE:
            self._depth += 1
            try:
                call(*args)
            finally:
                self._depth -= 1
            return
        self._put(above, call, args)
        if not self._busy:
            self.work()

    def spawn(
        self, coroutine: Coroutine[Any, Any, Any], answer: Callable[[Exception | None, Any], object]
    ) -> Cancellable:
        return _RandomTask(self, coroutine, answer)

    def post_unordered(self, call: Callable[..., object], *args: Any) -> None:
        """Queue `call(*args)` without any order relative to other events."""
        self._put(object(), call, args)

    def _put(self, lane: object, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        jobs = self._lanes.get(lane)
        if jobs is None:
            jobs = self._lanes[lane] = deque()
            self._ready.append(lane)
        jobs.append((call, args))

    def _take(self) -> Job:
        """Return the next event of a random lane."""
        ready = self._ready
        at = self._random.randrange(len(ready))
        lane = ready[at]
        jobs = self._lanes[lane]
        job = jobs.popleft()
        if not jobs:
            del self._lanes[lane]
            ready[at] = ready[-1]
            ready.pop()
        return job

    def _drain(self) -> None:
        self._busy = True
        depth, self._depth = self._depth, 0
        try:
            while self._ready or self._take_last():
                call, args = self._take()
                call(*args)
                if self._after_each is not None:
                    self._after_each()
                self._meanwhile()
        finally:
            self._busy = False
            self._depth = depth

    def _meanwhile(self) -> None:
        """Let tasks and the clock advance now and then beside the pipeline."""
        if self._turning:
            return
        if self._virtual is not None and self._random.random() < _TASKS_BETWEEN:
            self._turn()
        if self.passing and self._timers and self._random.random() < _TIME_BETWEEN:
            due = self._next_timer()
            if due is not None:
                self._due(due)

    def _waiting(self) -> bool:
        return bool(self._ready)

    def _fire(self, timer: Any) -> None:
        # A real clock advances between two calls of `later`, so timers do not overtake each other.
        self._put("timers", timer.fire, ())


class _RandomTask:
    """Coroutine that starts, and is reported as done, at random times."""

    def __init__(
        self,
        runtime: RandomRuntime,
        coroutine: Coroutine[Any, Any, Any],
        answer: Callable[[Exception | None, Any], object],
    ) -> None:
        self._runtime = runtime
        self._coroutine = coroutine
        self._answer = answer
        self._task: asyncio.Task[Any] | None = None
        self._waits = True
        runtime.outstanding += 1
        _ = runtime.loop
        runtime.post_unordered(self._begin)

    def _begin(self) -> None:
        if self._waits:
            self._task = self._runtime.loop.create_task(self._coroutine)
            self._task.add_done_callback(lambda _task: self._runtime.post_unordered(self._end))

    def _end(self) -> None:
        if not self._waits:
            return
        self._release()
        task = self._task
        assert task is not None
        if task.cancelled():
            self._answer(foreign_cancellation_error(), None)
            return
        error = task.exception()
        if error is not None and not isinstance(error, Exception):
            raise error
        self._answer(error, None if error else task.result())

    def _release(self) -> None:
        self._waits = False
        self._runtime.outstanding -= 1

    def cancel(self) -> None:
        if not self._waits:
            return
        self._release()
        if self._task is None:
            self._coroutine.close()
        else:
            self._task.cancel()
