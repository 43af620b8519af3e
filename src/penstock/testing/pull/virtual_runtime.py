"""VirtualRuntime: runs pipelines in virtual time, so that an hour of waiting takes none."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

from penstock.pull.pipeline_runtime import Runtime
from penstock.testing.pull.virtual_loop import VirtualLoop

GRACE = 0.02
"""Real seconds that threads, processes and sockets are given before virtual time goes on without them."""

PATIENCE = 10.0
"""Real seconds that they are given where nothing else is left to wait for."""

ENDING = 1.0
"""Real seconds that tasks are given which wait for nothing that can be seen."""


class VirtualRuntime(Runtime):
    """A `Runtime` in the usual order, whose clock goes on only when there is nothing else to do.

    passing: whether the clock goes on by itself, to the next timer, until nothing waits any more;
             else only by `advance` and `pass_to_next`.
             It is an attribute too, and may be changed at any time.
    after_each: called after each thing that happens: for invariants.

    `Pipeline.start(runtime)` runs the pipeline as far as it goes; then ask `Run.result()`.
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

    # -- the order of things --------------------------------------------------------------------

    def work(self) -> None:
        """Do what there is to do; let time pass, where it passes by itself."""
        self._drain()
        if self._turning:
            return  # called by a task: the loop goes on behind it
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
        """Run the tasks that are ready. Whether the pipeline has something to do now."""
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
        """Whether something is in the queue."""
        return bool(self._queue)

    # -- time -----------------------------------------------------------------------------------

    def now(self) -> float:
        return self.time

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> _VirtualTimer:
        self._count += 1
        timer = _VirtualTimer(self, call, args)
        heapq.heappush(self._timers, (self.time + max(seconds, 0.0), self._count, timer))
        self.outstanding += 1
        return timer

    def advance(self, seconds: float) -> None:
        """Let so many seconds pass, with all that happens meanwhile."""
        until = self.time + seconds
        while True:
            due = self._next_due()
            if due is None or due > until:
                break
            self._go_to(due)
        self.time = until

    def pass_to_next(self) -> bool:
        """Let time pass until something happens; False where nothing will."""
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
                pass  # a thread has brought something, and what followed may have made a task ready
            due = self._next_timer()
            wait = self._virtual.next_timer
            if wait is not None:
                due = self.time + wait if due is None else min(due, self.time + wait)
        return due

    def _go_to(self, due: float) -> None:
        """Let the clock go on, and do what is due then."""
        self._due(due)
        self._drain()
        self._turn()

    def _due(self, due: float) -> None:
        self.time = due
        while self._timers and self._timers[0][0] <= self.time:
            self._fire(heapq.heappop(self._timers)[2])

    def _fire(self, timer: _VirtualTimer) -> None:
        self._queue.append((timer.fire, ()))

    # -- tasks and threads ----------------------------------------------------------------------

    @property
    def loop(self) -> VirtualLoop:
        if self._virtual is None:
            self._virtual = VirtualLoop(self.now)
            self._loop = self._virtual
        return self._virtual

    def _patience(self, due: float | None) -> float:
        """Real seconds to wait for what the clock does not rule, before it goes on to what is due."""
        if self._expected > 0 or (self._virtual is not None and self._virtual.waits_for_outside):
            return PATIENCE if due is None else GRACE
        # A task may wait for the end of a process: no file tells of that.
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
        """How many timers, tasks and threads are left, those aside that are about to be cancelled."""
        self._turn()
        return self.outstanding

    def close(self) -> None:
        """End its event loop."""
        if self._virtual is not None:
            loop, self._virtual, self._loop = self._virtual, None, None
            loop.shut()

    def __enter__(self) -> VirtualRuntime:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()


class _VirtualTimer:
    """A call that will happen; `cancel` takes it back."""

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
