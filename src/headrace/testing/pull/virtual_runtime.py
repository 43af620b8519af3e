"""`VirtualRuntime`, `RandomRuntime`: pipelines in virtual time, in order or in an order drawn by a seed."""

from __future__ import annotations

import asyncio
import heapq
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

from headrace.pull.pipeline_runtime import DEEPEST, Cancellable, Job, Runtime, foreign_cancellation_error

R = TypeVar("R")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop with a virtual clock: it runs everything that is ready, and stops instead of waiting.

    clock: the virtual time in seconds, by which timers of the loop fire.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._watching = _Watching(self)
        self._jobs = 0
        self.next_timer: float | None = None
        """Seconds from the loop's last stop until its next timer; None without timers."""
        super().__init__(self._watching)
        self._own_files = len(self._watching.get_map())

    def time(self) -> float:
        return self._clock()

    def turn(self) -> None:
        """Run everything that is ready or becomes ready, without advancing the clock."""
        self.next_timer = None
        self.run_forever()

    def idle(self, timeout: float | None) -> None:
        """Handle an idle loop. timeout: seconds until the next timer."""
        self.next_timer = timeout
        self.stop()

    @property
    def waits_for_outside(self) -> bool:
        """Whether files, sockets, processes or threads may bring events."""
        return self._jobs > 0 or len(self._watching.get_map()) > self._own_files

    def wait_outside(self, seconds: float) -> bool:
        """Wait in real time. Returns whether an outside event arrived."""
        return bool(self._watching.wait(seconds))

    def run_in_executor(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, executor: Executor | None, func: Callable[..., R], *args: Any
    ) -> asyncio.Future[R]:
        self._jobs += 1
        future: asyncio.Future[R] = super().run_in_executor(executor, func, *args)  # pyright: ignore
        future.add_done_callback(self._job_done)
        return future

    def _job_done(self, _future: asyncio.Future[Any]) -> None:
        self._jobs -= 1

    def shut(self) -> None:
        """Cancel the remaining tasks, and close the loop."""
        self._watching.real_time = True
        left = asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self.run_until_complete(self.shutdown_asyncgens())
        self.run_until_complete(self.shutdown_default_executor())
        self.close()


class _Watching(selectors.DefaultSelector):  # type: ignore[misc,valid-type]
    """Selector that detects when the loop is about to wait: it polls with a timeout other than 0."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop
        self.real_time = False

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if self.real_time:
            return super().select(timeout)
        found = super().select(0)
        if not found and timeout != 0:
            self._loop.idle(timeout)
        return found

    def wait(self, seconds: float) -> list[tuple[selectors.SelectorKey, int]]:
        return super().select(seconds)


GRACE = 0.02
"""Real seconds to wait for threads, processes and sockets before virtual time advances without them."""

PATIENCE = 10.0
"""Real seconds to wait for them if there is nothing else to wait for."""

ENDING = 1.0
"""Real seconds to wait for tasks that depend on something invisible to the runtime."""


class VirtualRuntime(Runtime):
    """`Runtime` in the usual order. Its clock advances only when nothing else is left to do.

    passing: whether the clock advances by itself to the next timer until nothing is waiting; otherwise only
             by `advance` and `pass_to_next`. Also an attribute, which may be changed at any time.
    after_each: called after each event, to check invariants.

    `Pipeline.start(runtime)` runs the pipeline as far as possible; then call `Run.result()`.
    """

    def __init__(self, *, passing: bool = True, after_each: Callable[[], object] | None = None) -> None:
        super().__init__()
        self.time = 0.0
        self.passing = passing
        self._after_each = after_each
        self._timers: list[tuple[float, int, _VirtualTimer]] = []
        self._count = 0
        self._turning = False
        self._expected = 0
        self._virtual: VirtualLoop | None = None

    def work(self) -> None:
        """Process all events, and let virtual time pass if it advances automatically."""
        self._drain()
        if self._turning:
            return  # Called by a task: the loop continues after it.
        while self._turn() or (self.passing and self.pass_to_next()):
            self._drain()

    def _drain(self) -> None:
        self._busy = True
        queue, depth = self._queue, self._depth
        self._depth = 0
        try:
            while queue or self._take_last():
                call, args = queue.popleft()
                call(*args)
                if self._after_each is not None:
                    self._after_each()
        finally:
            self._busy = False
            self._depth = depth

    def _turn(self) -> bool:
        """Run the tasks that are ready. Returns whether the pipeline has events to process."""
        if self._virtual is None or self._turning:
            return False
        busy, self._busy = self._busy, False
        self._turning = True
        try:
            self._virtual.turn()
        finally:
            self._turning = False
            self._busy = busy
        if not self._waiting():
            return False
        if not busy:
            self._drain()
        return True

    def _waiting(self) -> bool:
        """Whether the queue holds events."""
        return bool(self._queue)

    def now(self) -> float:
        return self.time

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> _VirtualTimer:
        self._count += 1
        timer = _VirtualTimer(self, call, args)
        heapq.heappush(self._timers, (self.time + max(seconds, 0.0), self._count, timer))
        self.outstanding += 1
        return timer

    def advance(self, seconds: float) -> None:
        """Let the given seconds pass, processing all events meanwhile."""
        until = self.time + seconds
        while True:
            due = self._next_due()
            if due is None or due > until:
                break
            self._go_to(due)
        self.time = until

    def pass_to_next(self) -> bool:
        """Let time pass until an event occurs. Returns False if none will."""
        due = self._next_due()
        seconds = self._patience(due)
        if self._virtual is not None and seconds and self._virtual.wait_outside(seconds):
            self._turn()
            return True
        if due is None:
            return False
        self._go_to(due)
        return True

    def _next_timer(self) -> float | None:
        while self._timers and not self._timers[0][2].waits:
            heapq.heappop(self._timers)
        return self._timers[0][0] if self._timers else None

    def _next_due(self) -> float | None:
        due = self._next_timer()
        if self._virtual is not None:
            while self._turn():
                pass  # A thread delivered an event, which may have made a task ready.
            due = self._next_timer()
            wait = self._virtual.next_timer
            if wait is not None:
                due = self.time + wait if due is None else min(due, self.time + wait)
        return due

    def _go_to(self, due: float) -> None:
        """Advance the clock, and process the due events."""
        self._due(due)
        self._drain()
        self._turn()

    def _due(self, due: float) -> None:
        self.time = due
        while self._timers and self._timers[0][0] <= self.time:
            self._fire(heapq.heappop(self._timers)[2])

    def _fire(self, timer: _VirtualTimer) -> None:
        self._queue.append((timer.fire, ()))

    @property
    def loop(self) -> VirtualLoop:
        if self._virtual is None:
            self._virtual = VirtualLoop(self.now)
            self._loop = self._virtual
        return self._virtual

    def _patience(self, due: float | None) -> float:
        """Return the real seconds to wait for outside events before advancing to the next timer."""
        if self._expected > 0 or (self._virtual is not None and self._virtual.waits_for_outside):
            return PATIENCE if due is None else GRACE
        # A task may wait for the end of a process, which no file signals.
        return ENDING if due is None and self.outstanding > 0 else 0.0

    def expect(self) -> Callable[..., None]:
        resume = super().expect()
        self._expected += 1

        def arrive(call: Callable[..., object], *args: Any) -> None:
            self._expected -= 1
            call(*args)

        return lambda call, *args: resume(arrive, call, *args)

    @property
    def left(self) -> int:
        """Number of remaining timers, tasks and threads, without those being cancelled."""
        self._turn()
        return self.outstanding

    def close(self) -> None:
        """Close its event loop."""
        if self._virtual is not None:
            loop, self._virtual, self._loop = self._virtual, None, None
            loop.shut()

    def __enter__(self) -> VirtualRuntime:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()


class _VirtualTimer:
    """Pending call that can be cancelled."""

    def __init__(self, runtime: Runtime, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        self._runtime = runtime
        self._call = call
        self._args = args
        self.waits = True

    def fire(self) -> None:
        if self.waits:
            self.cancel()
            self._call(*self._args)

    def cancel(self) -> None:
        if self.waits:
            self.waits = False
            self._runtime.outstanding -= 1


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
