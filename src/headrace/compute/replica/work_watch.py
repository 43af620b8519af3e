"""Watch over the work of a replica's one thread, which interrupts a piece that takes too much.

Commands are received between pieces of work: ticks of dataflows, and parts of peeks. Most pieces take a few
milliseconds. A signal handler looks at one that takes longer, in the same thread and between two
instructions, and raises an exception in it when it has used up its processor time or memory, or when the
process is to end. So an interruption cannot come after the end of the piece it was meant for.

What is guaranteed is that a piece ends at the first look after it has exceeded a limit, and that looks are
made between two instructions of Python. A single call of a function written in C delays them for as long as
it lasts, and may take any memory meanwhile; `headrace.expr.bounds` keeps those calls short for the functions
of expressions, but nothing does for Python functions of users. Memory is that of the whole process.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headrace.compute.replica.death_record import DeathRecord
from headrace.errors import WorkLimitExceeded

_LOOK = 0.05
"""Seconds between two looks at a piece of work."""
_SUSPECT_SECONDS = 0.5
_SUSPECT_MEMORY = 256 << 20
"""Processor time and memory from which a piece of work is noted as what the process may die of."""


class WorkStopped(BaseException):
    """Raised in a piece of work because the process is to end. The dataflow is then half of a tick."""


def memory_of_process() -> int:
    """Return this process's resident memory in bytes, or 0 if unknown."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class PieceLimits:
    """Limits of one piece of work.

    what: noun for messages. seconds: of processor time. memory: bytes.
    dataflow: name of the dataflow that the process would die of; empty: of none.
    """

    what: str
    seconds: float
    memory: int
    dataflow: str = ""


class WorkWatch:
    """Watch of one thread. Without `installed`, it interrupts nothing.

    timer: seconds of processor time. memory: bytes of the process. deaths: record of what it dies of.
    stopping: whether the process is to end, so that no work should begin.
    """

    def __init__(
        self,
        timer: Callable[[], float] = time.thread_time,
        memory: Callable[[], int] = memory_of_process,
        deaths: DeathRecord | None = None,
    ) -> None:
        self.stopping = False
        self.deaths = deaths or DeathRecord()
        self._noted = False
        self._timer = timer
        self._memory = memory
        self._limits: PieceLimits | None = None
        self._began: tuple[float, int] | None = None
        self._installed = False
        self._whole = self._due = False
        self._time = 0

    def begin(self, limits: PieceLimits, time: int = 0) -> None:
        """Begin a piece of work at a time. Call it within the `try` whose `finally` calls `end`."""
        self._began = None
        self._limits, self._time = limits, time

    def end(self) -> None:
        """End the piece of work; nothing is interrupted until the next begins."""
        self._limits = None
        self._due = False
        if self._noted:
            self._noted = False
            self.deaths.end_work()

    def look(self) -> None:
        """Raise `WorkStopped` or `WorkLimitExceeded` if the current piece is to end."""
        limits = self._limits
        if limits is None:
            return
        if self._whole:
            self._due = True
        elif self.stopping:
            raise WorkStopped
        now, memory = self._timer(), self._memory()
        if self._began is None:
            # Begun up to a look ago: most pieces end before the first, and need not pay for a clock.
            self._began = now, memory
        began, before = self._began
        if not self._noted and (now - began > _SUSPECT_SECONDS or memory - before > _SUSPECT_MEMORY):
            self._noted = True
            self.deaths.begin_work(limits.dataflow, self._time)
        if self._whole:
            return
        if now - began > limits.seconds:
            raise _exceeded(limits, "processor time", f"{limits.seconds:g} s", limits.seconds, now - began)
        if memory - before > limits.memory:
            reached = memory - before
            raise _exceeded(limits, "memory", f"{limits.memory / 1e6:,.0f} MB", limits.memory, reached)

    @contextmanager
    def finishing(self) -> Generator[None]:
        """Do a short part of a piece as a whole: it is interrupted only after this block."""
        self._whole = True
        try:
            yield
        finally:
            self._whole = False
        if self._due:
            self._due = False
            self.look()

    # -- signals --------------------------------------------------------------------------------

    @contextmanager
    def installed(self, *, stops: bool = True) -> Generator[None]:
        """Look at work inside this block, in the main thread only.

        stops: stop it at SIGINT and SIGTERM, and then do what was done at them before. Where that is the
            system's default, nothing changes: it ends the process at once, or ignores the signal.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers: dict[signal.Signals, Callable[..., Any]] = {signal.SIGALRM: self._on_alarm}
        if stops:
            for number in (signal.SIGINT, signal.SIGTERM):
                if callable(earlier := signal.getsignal(number)):
                    handlers[number] = partial(self._on_stop, earlier)
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        for number in handlers:
            signal.siginterrupt(number, False)
        self._installed = True
        try:
            yield
        finally:
            self._installed = False
            signal.setitimer(signal.ITIMER_REAL, 0)
            for number, handler in before.items():
                signal.signal(number, handler)

    @contextmanager
    def looking(self) -> Generator[None]:
        """Look at the pieces of work inside this block every few hundredths of a second."""
        if not self._installed:
            yield
            return
        # Each look leaves a byte for the event loop, which reads none while it waits for the work.
        signal.set_wakeup_fd(signal.set_wakeup_fd(-1), warn_on_full_buffer=False)
        signal.setitimer(signal.ITIMER_REAL, _LOOK, _LOOK)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _on_alarm(self, _number: int, _frame: Any) -> None:
        self.look()

    def _on_stop(self, earlier: Callable[..., Any], number: int, frame: Any) -> None:
        self.stopping = True
        earlier(number, frame)
        self.look()


def _exceeded(limits: PieceLimits, what: str, shown: str, limit: float, reached: float) -> WorkLimitExceeded:
    return WorkLimitExceeded(
        f"{limits.what} takes more than {shown} of {what}",
        why="A replica works for all its readers in turn, and this would hold up the others.",
        fix="let fewer rows meet, or smaller ones; for a view, higher limits can be given",
        limit=limit,
        reached=reached,
    )
