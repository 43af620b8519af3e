"""Runtime of pipelines: a trampoline, timers and tasks.

Answers are queued, and the outermost frame works the queue off. No module is called while another of its
functions runs, so modules need no loops around their own reads, and a million synchronous values need no
stack.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from headrace.errors import BadOption, SourceLocation
from headrace.pull.errors import CallCancelled, LoopRunsAlready, WrongThread

if TYPE_CHECKING:
    import asyncio

Job = tuple[Callable[..., object], tuple[Any, ...]]

DEEPEST = 30
"""Limit on nested requests on the stack; further ones are queued."""

_SLICE = 0.005
"""Seconds of work before yielding to other tasks of the event loop."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop running in this thread, if any."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Cancellable(Protocol):
    """Timer or task that can be cancelled."""

    def cancel(self) -> object: ...


class Runtime:
    """Event queue of one thread, with an event loop if modules wait for outside events.

    `post` is for modules and edges; `enter` is for calls from outside: the event loop, user code.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self._queue: deque[Job] = deque()
        self._last: deque[Job] = deque()
        self._busy = False
        self._depth = 0
        self._loop = loop
        self._own_loop = loop is None
        self._thread = get_ident()
        self._resumes = False
        self._tasks: dict[_Task, None] = {}
        self.replay = ""
        """Instructions to reproduce the order of events, if the runtime chose it."""
        self.outstanding = 0
        """Number of outstanding timers, tasks and threads."""
        self.when_idle: Callable[[], object] | None = None
        """Called when the runtime's own loop has nothing left to wait for, or an exception `escaped`."""
        self.escaped: BaseException | None = None
        """Exception that escaped from a call of the event loop, which would only log it."""

    def post(self, lane: object, call: Callable[..., object], *args: Any) -> None:
        """Queue `call(*args)`, after everything posted before on the same lane.

        lane: calls of one lane keep their order; this runtime keeps the order of all.
        """
        self._queue.append((call, args))
        if not self._busy:
            self.work()

    def descend(self, lane: object, call: Callable[..., object], *args: Any) -> None:
        """Call `call(*args)` now if the stack is shallow and the queue empty, otherwise queue it."""
        if self._busy and self._depth < DEEPEST and not self._queue:
            self._depth += 1
            try:
                call(*args)
            finally:
                self._depth -= 1
        else:
            self.post(lane, call, *args)

    def enter(self, call: Callable[..., object], *args: Any) -> None:
        """Run `call(*args)` from outside the pipeline, and process all that follows.

        Raises `WrongThread` in a thread other than the pipeline's.
        """
        if get_ident() != self._thread:
            raise WrongThread(
                "a pipeline is called from a thread other than its own",
                where=[SourceLocation.of_caller()],
                why="Two threads would work on it at once, and nothing would wake it.",
                fix="loop.call_soon_threadsafe(...) with its loop; or pushable(thread_safe=True)",
            )
        self.post(None, call, *args)

    def move_here(self) -> None:
        """Bind the pipeline to this thread."""
        self._thread = get_ident()

    def prepare(self, call: Callable[..., object], *args: Any) -> None:
        """Queue `call(*args)` for the next `work`."""
        self._busy = True
        self.post(None, call, *args)
        self._busy = False

    def when_at_rest(self, call: Callable[..., object], *args: Any) -> None:
        """Queue `call(*args)` until only outside events are left to wait for."""
        self._last.append((call, args))
        if not self._busy:
            self.work()

    def _take_last(self) -> bool:
        """Queue the next call passed to `at_rest`. Returns whether there was one."""
        if not self._last:
            return False
        call, args = self._last.popleft()
        self.post(object(), call, *args)
        return True

    def work(self) -> None:
        """Process the queue; within an event loop, yield to its other tasks regularly."""
        self._busy = True
        queue, depth = self._queue, self._depth
        self._depth = 0
        stop = None if self._loop is None else time.perf_counter() + _SLICE
        left = 0
        try:
            while queue or self._take_last():
                call, args = queue.popleft()
                call(*args)
                if stop is not None:
                    left = left + 1 if left < 100 else 0
                    if left == 0 and time.perf_counter() > stop and queue:
                        self._resume_later()
                        break
        finally:
            self._busy = False
            self._depth = depth
        self.check_idle()

    @property
    def idle(self) -> bool:
        """Whether no further event can occur; a shared loop may always bring one."""
        return self._own_loop and not self.outstanding and not self._queue

    def check_idle(self) -> None:
        """Check for idleness once an event is no longer pending."""
        if self.when_idle is not None and self.idle:
            self.when_idle()

    def _resume_later(self) -> None:
        if not self._resumes:
            self._resumes = True
            self.outstanding += 1
            self.loop.call_soon(self._resume)

    def _resume(self) -> None:
        self._resumes = False
        self.outstanding -= 1
        if not self._busy:
            self.in_loop(self.work)

    def in_loop(self, call: Callable[..., object], *args: Any) -> None:
        """Run a callback of the event loop. An escaping exception is raised to the run's waiter."""
        try:
            call(*args)
        except BaseException as error:
            self.escape(error)

    def escape(self, error: BaseException) -> None:
        """Record an exception, to be raised to the run's waiter."""
        self.escaped = self.escaped if self.escaped is not None else error
        if self.when_idle is not None:
            self.when_idle()

    def raise_escaped(self) -> None:
        """Raise the recorded exception, once."""
        error, self.escaped = self.escaped, None
        if error is not None:
            raise error

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the event loop, creating one when the first module needs it.

        Raises `LoopRunsAlready` if another one is running in this thread.
        """
        if self._loop is None:
            import asyncio

            self.check_no_loop_runs()
            self._loop = asyncio.new_event_loop()
        return self._loop

    def check_no_loop_runs(self) -> None:
        """Raise `LoopRunsAlready` if an event loop runs in this thread."""
        if running_loop() is not None:
            raise LoopRunsAlready(
                "the pipeline waits for something outside, and an event loop is running already",
                where=[SourceLocation.of_caller()],
                why="run() would stop that loop, and with it everything else in it.",
                fix="await the pipeline, or start() it",
            )

    def adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Continue in the given event loop. Raises `LoopRunsAlready` if the pipeline waits in another one."""
        if self._loop is None:
            self._loop, self._own_loop = loop, False
        elif self._loop is not loop:
            raise LoopRunsAlready(
                "the pipeline was started outside of this event loop, and waits in one of its own",
                where=[SourceLocation.of_caller()],
                fix="start() it where the event loop runs, or wait() for it where none does",
            )

    @property
    def is_shared(self) -> bool:
        """Whether the event loop belongs to other code."""
        return not self._own_loop

    @property
    def has_loop(self) -> bool:
        return self._loop is not None

    def now(self) -> float:
        """Return the time of a monotonic clock in seconds."""
        return time.monotonic() if self._loop is None else self._loop.time()

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> Cancellable:
        """Start a timer that runs `call(*args)` after the given seconds."""
        return _Timer(self, seconds, call, args)

    def spawn(
        self, coroutine: Coroutine[Any, Any, Any], answer: Callable[[Exception | None, Any], object]
    ) -> Cancellable:
        """Run a coroutine as a task, and call `answer(error, result)` when it is done.

        A task cancelled through this handle gives no answer. One cancelled elsewhere answers `CallCancelled`;
        `asyncio.run`, for instance, cancels all tasks at its end.
        """
        task = _Task(self, coroutine, answer)
        self._tasks[task] = None
        return task

    def task_done(self, task: _Task) -> None:
        """Handle the end of a task. Called by the task."""
        self._tasks.pop(task, None)

    async def wait_for_cancelled_tasks(self, seconds: float | None) -> None:
        """Wait for cancelled tasks to clean up, for a limited time."""
        import asyncio

        tasks = [task.task for task in self._tasks if task.cancelled]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def expect(self) -> Callable[..., None]:
        """Announce a call from another thread; returns `resume(call, *args)` for one use by any thread."""
        loop = self.loop
        self.outstanding += 1
        used = False

        def arrive(call: Callable[..., object], args: tuple[Any, ...]) -> None:
            nonlocal used
            if not used:  # a second use would miscount
                used = True
                self.outstanding -= 1
                self.in_loop(self.enter, call, *args)

        def resume(call: Callable[..., object], *args: Any) -> None:
            try:
                loop.call_soon_threadsafe(arrive, call, args)
            except RuntimeError:
                if not loop.is_closed():  # otherwise nobody waits for the thread any more
                    raise

        return resume

    def close(self) -> None:
        """Close the event loop if the runtime owns it."""
        if self._own_loop and self._loop is not None:
            loop, self._loop = self._loop, None
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


class _Timer:
    """Pending call that can be cancelled. Raises `BadOption` for an invalid number of seconds."""

    def __init__(
        self, runtime: Runtime, seconds: float, call: Callable[..., object], args: tuple[Any, ...]
    ) -> None:
        if not math.isfinite(seconds):
            raise BadOption(f"a timer cannot wait {seconds} seconds", where=[SourceLocation.of_caller()])
        self._runtime = runtime
        self._waits = True
        self._handle = runtime.loop.call_later(seconds, runtime.in_loop, self._fire, call, args)
        runtime.outstanding += 1

    def _fire(self, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        if self._waits:
            self._release()
            self._runtime.enter(call, *args)

    def _release(self) -> None:
        self._waits = False
        self._runtime.outstanding -= 1

    def cancel(self) -> None:
        if self._waits:
            self._handle.cancel()
            self._release()


class _Task:
    """Running coroutine; `cancel` also suppresses its answer."""

    def __init__(
        self,
        runtime: Runtime,
        coroutine: Coroutine[Any, Any, Any],
        answer: Callable[[Exception | None, Any], object],
    ) -> None:
        try:
            self.task: asyncio.Task[Any] = runtime.loop.create_task(coroutine)
        except LoopRunsAlready:
            coroutine.close()
            raise
        runtime.outstanding += 1
        self.cancelled = False
        self._runtime = runtime
        self._answer = answer
        self.task.add_done_callback(lambda task: runtime.in_loop(self._done, task))

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._runtime.outstanding -= 1
        self._runtime.task_done(self)
        error = foreign_cancellation_error() if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Exception):
            if not isinstance(error, KeyboardInterrupt | SystemExit):  # already raised by the event loop
                self._runtime.escape(error)
            error = _ended_by(error)  # so that the module does not wait for its answer
        if self.cancelled:
            self._runtime.check_idle()
        else:
            self._runtime.enter(self._answer, error, None if error is not None else task.result())

    def cancel(self) -> None:
        self.cancelled = True
        self.task.cancel()


def _ended_by(error: BaseException) -> CallCancelled:
    return CallCancelled(
        f"a task of the pipeline was ended by {type(error).__name__}",
        why="That is no exception of a call: it ends the program, or what runs the pipeline.",
    )


def foreign_cancellation_error() -> CallCancelled:
    """Build the error for a task that was not cancelled by the pipeline."""
    return CallCancelled(
        "a task of the pipeline was cancelled by somebody else",
        why="Nobody but the pipeline knows what waits for it; asyncio.run() cancels all tasks that are left.",
        fix="stop the pipeline instead, and await it before the event loop ends",
    )
