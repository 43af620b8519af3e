"""Dataflow threads: coroutines that wait only for dataflow variables."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any, cast

from headrace.errors import SourceLocation
from headrace.pull.dataflow.variable import Variable
from headrace.pull.errors import ForeignAwait


class Thread:
    """Coroutine that is suspended when it awaits an unbound variable, and resumed once it is bound.

    failed: called with an exception of the coroutine. over: called with the thread when it has returned.
    """

    __slots__ = ("_coroutine", "_failed", "_over", "_runs", "_stopped", "_wakes")

    def __init__(
        self,
        coroutine: Coroutine[Variable[Any], Any, Any],
        failed: Callable[[Exception], object],
        over: Callable[[Thread], object] | None = None,
    ) -> None:
        self._coroutine = coroutine
        self._failed = failed
        self._over = over
        self._runs = False
        self._stopped = False
        self._wakes = self._wake  # one bound method instead of one per value

    def start(self) -> None:
        """Run the thread for the first time."""
        self._wake(None)

    def cancel(self) -> None:
        """End the thread without resuming it; the `finally` blocks still run."""
        self._stopped = True
        if not self._runs:
            self._coroutine.close()

    def _wake(self, _value: object) -> None:
        if self._stopped:
            return
        self._runs = True
        try:
            waits_for = self._coroutine.send(None)
        except StopIteration:
            self._stopped = True
            if self._over is not None:
                self._over(self)
            return
        except Exception as error:
            self._stopped = True
            self._failed(error)
            return
        finally:
            self._runs = False
        if self._stopped:
            self._coroutine.close()
        elif isinstance(waits_for, Variable):  # pyright: ignore[reportUnnecessaryIsInstance]
            waits_for.when_bound(self._wakes, self._wakes)
        else:
            self._await_nothing_else()

    def _await_nothing_else(self) -> None:
        running = cast("CoroutineType[Any, Any, Any]", self._coroutine)
        name, frame = running.cr_code.co_name, running.cr_frame
        assert frame is not None, "it is suspended"
        location = SourceLocation(frame.f_code.co_filename, frame.f_lineno, name)
        self._stopped = True
        self._coroutine.close()
        self._failed(
            ForeignAwait(
                f"the dataflow thread {name!r} awaits something other than a variable",
                where=[location],
                why="A dataflow thread resumes when a variable is bound; no event loop runs it.",
                fix="await module.task(coroutine), which is a variable of the coroutine's result",
            )
        )
