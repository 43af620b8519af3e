"""The runtime of pipelines: the one trampoline, timers, tasks.

No answer reaches a module while another of its functions runs: it waits in a queue,
and the outermost frame works the queue off. So a million synchronous values need no
stack, no module is entered twice, and no module has to loop around its own reads.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from penstock.errors import BadOption, CallCancelled, LoopRunsAlready, SourceLocation, WrongThread

if TYPE_CHECKING:
    import asyncio

Job = tuple[Callable[..., object], tuple[Any, ...]]

DEEPEST = 30
"""Requests that may stand on the stack within each other; further ones wait in the queue."""

_SLICE = 0.005
"""Seconds of work between two turns of the event loop's other tasks."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs in this thread, if one does."""
    if "asyncio" not in sys.modules:
        return None
    import asyncio

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class Cancellable(Protocol):
    """A timer or a task."""

    def cancel(self) -> object: ...


class Runtime:
    """One thread's queue of what is to happen, and its event loop where modules wait for something outside.

    `post` is for modules and edges; `enter` for everything that comes from outside: event loop, user code.
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
        """How to have the same order of events again, where the runtime has chosen it."""
        self.outstanding = 0
        """How many timers, tasks and threads will still bring something."""
        self.when_idle: Callable[[], object] | None = None
        """Called where nothing is left to wait for, in a loop of its own; and where something `escaped`."""
        self.escaped: BaseException | None = None
        """What came out of a call of the event loop, which would only log it."""

    # -- the trampoline -------------------------------------------------------------------------

    def post(self, lane: object, call: Callable[..., object], *args: Any) -> None:
        """Have `call(*args)` happen, after what was posted before on the same lane.

        lane: what must keep its order among itself; here all that is posted does.
        """
        self._queue.append((call, args))
        if not self._busy:
            self.work()

    def descend(self, lane: object, call: Callable[..., object], *args: Any) -> None:
        """Have `call(*args)` happen: now where the stack allows it and nothing waits, else from the queue."""
        if self._busy and self._depth < DEEPEST and not self._queue:
            self._depth += 1
            try:
                call(*args)
            finally:
                self._depth -= 1
        else:
            self.post(lane, call, *args)

    def enter(self, call: Callable[..., object], *args: Any) -> None:
        """`call(*args)` from outside of the pipeline, and all that follows from it.

        Raises `WrongThread` in another thread than that which the pipeline works in.
        """
        if get_ident() != self._thread:
            raise WrongThread(
                "a pipeline is told something from a thread other than its own",
                where=[SourceLocation.of_caller()],
                why="Two threads would work on it at once, and nothing would wake it.",
                fix="loop.call_soon_threadsafe(...) with its loop; or pushable(thread_safe=True)",
            )
        self.post(None, call, *args)

    def move_here(self) -> None:
        """The pipeline works in this thread from now on."""
        self._thread = get_ident()

    def prepare(self, call: Callable[..., object], *args: Any) -> None:
        """Have `call(*args)` happen when `work` is called next."""
        self._busy = True
        self.post(None, call, *args)
        self._busy = False

    def at_rest(self, call: Callable[..., object], *args: Any) -> None:
        """Have `call(*args)` happen when all that is left waits for something outside."""
        self._last.append((call, args))
        if not self._busy:
            self.work()

    def _take_last(self) -> bool:
        """Queue the next thing that waited for the rest; whether there was one."""
        if not self._last:
            return False
        call, args = self._last.popleft()
        self.post(object(), call, *args)
        return True

    def work(self) -> None:
        """Work the queue off; within an event loop, let its other tasks have their turn now and then."""
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
        self.look_if_idle()

    @property
    def idle(self) -> bool:
        """Whether nothing will happen by itself any more: a shared loop may always bring something."""
        return self._own_loop and not self.outstanding and not self._queue

    def look_if_idle(self) -> None:
        """Something that was waited for has gone: nothing else may be left."""
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
        """A call by the event loop: what escapes from it is raised where the run is waited for."""
        try:
            call(*args)
        except BaseException as error:
            self.escape(error)

    def escape(self, error: BaseException) -> None:
        """Have this raised where the run is waited for."""
        self.escaped = self.escaped if self.escaped is not None else error
        if self.when_idle is not None:
            self.when_idle()

    def raise_escaped(self) -> None:
        """Raise what escaped from a call of the event loop, once."""
        error, self.escaped = self.escaped, None
        if error is not None:
            raise error

    # -- what comes from outside ----------------------------------------------------------------

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The event loop; one of its own is made when the first module needs one.

        Raises `LoopRunsAlready` where that could not be run.
        """
        if self._loop is None:
            import asyncio

            self.check_no_loop_runs()
            self._loop = asyncio.new_event_loop()
        return self._loop

    def check_no_loop_runs(self) -> None:
        """Raises `LoopRunsAlready` where an event loop runs in this thread."""
        if running_loop() is not None:
            raise LoopRunsAlready(
                "the pipeline waits for something outside, and an event loop is running already",
                where=[SourceLocation.of_caller()],
                why="run() would stop that loop, and with it everything else in it.",
                fix="await the pipeline, or start() it",
            )

    def adopt(self, loop: asyncio.AbstractEventLoop) -> None:
        """Go on in this event loop. Raises `LoopRunsAlready` for a pipeline that waits in another one."""
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
        """Whether its event loop is that of others."""
        return not self._own_loop

    @property
    def has_loop(self) -> bool:
        return self._loop is not None

    def now(self) -> float:
        """Seconds of a clock that never goes back."""
        return time.monotonic() if self._loop is None else self._loop.time()

    def later(self, seconds: float, call: Callable[..., object], *args: Any) -> Cancellable:
        """Have `call(*args)` happen after so many seconds, unless the timer is cancelled."""
        return _Timer(self, seconds, call, args)

    def spawn(
        self, coroutine: Coroutine[Any, Any, Any], answer: Callable[[Exception | None, Any], object]
    ) -> Cancellable:
        """Run a coroutine beside everything else, and have `answer(error, result)` happen when it is done.

        A task that is cancelled here answers nothing; one that somebody else cancels (`asyncio.run` cancels
        all there are when it ends) answers `CallCancelled`.
        """
        task = _Task(self, coroutine, answer)
        self._tasks[task] = None
        return task

    def task_done(self, task: _Task) -> None:
        """Told by a task."""
        self._tasks.pop(task, None)

    async def tasks_over(self, seconds: float | None) -> None:
        """Wait until cancelled tasks have cleaned up, so many seconds at most."""
        import asyncio

        tasks = [task.task for task in self._tasks if task.cancelled]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)

    def expect(self) -> Callable[..., None]:
        """Announce a call from another thread: `resume(call, *args)`, to be used once and from any thread."""
        loop = self.loop
        self.outstanding += 1
        used = False

        def arrive(call: Callable[..., object], args: tuple[Any, ...]) -> None:
            nonlocal used
            if not used:  # a second use would count something else out
                used = True
                self.outstanding -= 1
                self.in_loop(self.enter, call, *args)

        def resume(call: Callable[..., object], *args: Any) -> None:
            try:
                loop.call_soon_threadsafe(arrive, call, args)
            except RuntimeError:
                if not loop.is_closed():  # else nobody waits for the thread any more
                    raise

        return resume

    def close(self) -> None:
        """End the event loop, if it is the runtime's own."""
        if self._own_loop and self._loop is not None:
            loop, self._loop = self._loop, None
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()


class _Timer:
    """A call that will happen; `cancel` takes it back. Raises `BadOption` for no number of seconds."""

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
    """A coroutine that runs; `cancel` takes back its answer too."""

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
        error = cancelled_elsewhere() if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Exception):
            if not isinstance(
                error, KeyboardInterrupt | SystemExit
            ):  # those the event loop has raised already
                self._runtime.escape(error)
            error = _ended_by(error)  # the module must not wait for its answer
        if self.cancelled:
            self._runtime.look_if_idle()
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


def cancelled_elsewhere() -> CallCancelled:
    """The error of a task that somebody else than the pipeline has cancelled."""
    return CallCancelled(
        "a task of the pipeline was cancelled by somebody else",
        why="Nobody but the pipeline knows what waits for it; asyncio.run() cancels all tasks that are left.",
        fix="stop the pipeline instead, and await it before the event loop ends",
    )
