"""What a runtime waits for: timers, tasks, and calls from other threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from penstock.errors import BadOption, CallCancelled, LoopRunsAlready, SourceLocation

if TYPE_CHECKING:
    import asyncio

    from penstock.pull.runtime import Runtime


class Timer:
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


class Task:
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


def expected(runtime: Runtime) -> Callable[..., None]:
    """See `Runtime.expect`."""
    loop = runtime.loop
    runtime.outstanding += 1
    used = False

    def arrive(call: Callable[..., object], args: tuple[Any, ...]) -> None:
        nonlocal used
        if not used:  # a second use would count something else out
            used = True
            runtime.outstanding -= 1
            runtime.in_loop(runtime.enter, call, *args)

    def resume(call: Callable[..., object], *args: Any) -> None:
        try:
            loop.call_soon_threadsafe(arrive, call, args)
        except RuntimeError:
            if not loop.is_closed():  # else nobody waits for the thread any more
                raise

    return resume


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
