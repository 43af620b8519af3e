"""Watchdog of a replica's single thread, which interrupts a piece of work that exceeds its limits.

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

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, cast

from headrace.compute.errors import ViewQuarantined
from headrace.compute.frontier import Frontier
from headrace.compute.protocol.commands import Dataflow
from headrace.errors import WorkLimitExceeded
from headrace.file_system import make_private_file

# A dataflow that takes the memory of the machine ends the process without a chance to say why. So a long
# piece of work is noted in a file while it lasts. An entry found at start names the dataflow that ended the
# previous process; one named twice is not computed again, until it is dropped and created anew under
# another id. One that comes past the time at which it did so is forgiven.


MAX_DEATHS = 2
MAX_RECORDED = 100
"""Dataflows in a record. The one whose last death is longest ago is forgotten first: most likely it was
dropped, perhaps while the replica was away."""


class _Deaths(NamedTuple):
    """Process deaths caused by one dataflow. time: latest time of the dataflow at such a death."""

    number: int
    time: int


_NONE = _Deaths(0, 0)


class DeathRecord:
    """Record of process deaths by dataflow. folder: folder of the process; None disables recording."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._deaths: dict[str, _Deaths] = {}
        if folder is not None:
            self._take_over(folder)

    def begin_work(self, dataflow: str, time: int = 0) -> None:
        """Record that the process is working on a dataflow, at one of its times, in case it dies."""
        if self._folder is not None and dataflow:
            with suppress(OSError):  # a full disk is no reason to fail
                _replace(self._at_work(self._folder), json.dumps([dataflow, time]))

    def end_work(self) -> None:
        """Clear the record of `begin_work`."""
        if self._folder is not None:
            with suppress(OSError):
                self._at_work(self._folder).unlink(missing_ok=True)

    def forget_before(self, dataflow: str, upper: Frontier) -> None:
        """Forget the deaths of a dataflow that has advanced past the time at which the process died."""
        death = self._deaths.get(dataflow)
        if death is not None and upper.has_passed(death.time):
            del self._deaths[dataflow]
            if self._folder is not None:
                with suppress(OSError):
                    self._save(self._folder)

    def check(self, dataflow: Dataflow) -> None:
        """Raise `ViewQuarantined` for a dataflow that crashed this replica twice."""
        deaths = self._deaths.get(name_of(dataflow), _NONE).number
        if deaths >= MAX_DEATHS:
            times = "twice" if deaths == 2 else f"{deaths} times"
            raise ViewQuarantined(
                f"this replica crashed {times} while it computed {dataflow.name or name_of(dataflow)!r}",
                why="It is not computed here again, so that the other views are served.",
                fix="drop it, then create it with a flow or with limits that need less",
                deaths=deaths,
            )

    def _take_over(self, folder: Path) -> None:
        with suppress(OSError, ValueError, TypeError):
            found: object = json.loads(self._known(folder).read_text())
            if isinstance(found, dict):
                known = cast("dict[str, Any]", found)
                self._deaths = {
                    name: _Deaths(number, time)
                    for name, (number, time) in cast("dict[str, list[int]]", known).items()
                }
        with suppress(OSError, ValueError, TypeError):
            died_of, time = json.loads(self._at_work(folder).read_text())
            earlier = self._deaths.pop(died_of, _NONE)
            self._deaths[died_of] = _Deaths(earlier.number + 1, max(earlier.time, time))
            self._deaths = dict(list(self._deaths.items())[-MAX_RECORDED:])
            self._save(folder)
        self.end_work()

    def _save(self, folder: Path) -> None:
        _replace(self._known(folder), json.dumps(self._deaths))

    @staticmethod
    def _at_work(folder: Path) -> Path:
        return folder / "at-work.txt"

    @staticmethod
    def _known(folder: Path) -> Path:
        return folder / "deaths.json"


def _replace(path: Path, text: str) -> None:
    """Replace a file atomically, readable by its owner only. Raises OSError."""
    part = path.with_name(f"{path.name}.part")
    make_private_file(part)
    part.write_text(text)
    os.replace(part, path)


def name_of(dataflow: Dataflow) -> str:
    """Return the name under which the deaths of a dataflow are counted."""
    return f"{min(dataflow.export_ids, default='')} {dataflow.plan.hash[:16]}"


_LOOK = 0.05
"""Seconds between two looks at a piece of work."""
_SUSPECT_SECONDS = 0.5
_SUSPECT_MEMORY = 256 << 20
"""Processor time and memory from which a piece of work is noted as what the process may die of."""


class WorkStopped(BaseException):
    """Raised in a piece of work if the process must end. The dataflow is left in the middle of a tick."""


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
    """Watchdog of one thread. It interrupts nothing unless `installed`.

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
        """Raise `WorkStopped` or `WorkLimitExceeded` if the current piece must stop."""
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
        """Run a short part of a piece without interruption: a pending one takes effect after this block."""
        self._whole = True
        try:
            yield
        finally:
            self._whole = False
        if self._due:
            self._due = False
            self.look()

    @contextmanager
    def installed(self, *, stops: bool = True) -> Generator[None]:
        """Install the signal handlers that watch work inside this block, in the main thread only.

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
        """Check the pieces of work inside this block every few hundredths of a second."""
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
