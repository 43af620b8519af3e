"""Processor time of a tick, by process and by phase of the tasks, and what travelled between its stages."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from headrace.engine.progress import Cost

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

Phase: TypeAlias = Literal["read", "compute", "load state", "write state", "exchange", "write"]
Report: TypeAlias = "tuple[float, Mapping[str, float], Mapping[int, int], int, int | None]"
"""What a task reports: processor seconds, by phase, rows by exchange, bytes shuffled, bytes in memory."""

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
_reported = 0.0
"""Processor time of this worker process that its tasks have reported."""


@dataclass(slots=True)
class TaskCost:
    """Processor time of a task by phase, and its rows by exchange. A task runs in one thread.

    shuffled: bytes of rows that leave the task.
    """

    phases: dict[str, float] = field(default_factory=lambda: dict.fromkeys(get_args(Phase), 0.0))
    exchanges: Counter[int] = field(default_factory=Counter[int])
    shuffled: int = 0
    _phase: Phase = "read"
    _since: float = field(default_factory=time.thread_time)

    def enter(self, phase: Phase) -> Phase:
        """Count what comes as part of a phase; return the phase before."""
        now = time.thread_time()
        before = self._phase
        self.phases[before] += now - self._since
        self._phase, self._since = phase, now
        return before

    def loaded(self, seconds: float) -> None:
        """Count part of the time spent computing as time in which state was loaded.

        It was measured by the clock, so on a busy machine it may be more than the processor gave.
        """
        part = min(seconds, self.phases["compute"])
        self.phases["load state"] += part
        self.phases["compute"] -= part

    def result(self) -> Report:
        """Report the costs; the seconds are those of the process since its last task."""
        global _reported
        self.enter(self._phase)
        seconds = time.process_time()
        spent, _reported = seconds - _reported, seconds
        return spent, dict(self.phases), dict(self.exchanges), self.shuffled, _most_memory()


def _most_memory() -> int | None:
    """Return the most bytes that this process has had in memory."""
    try:
        import resource
    except ImportError:
        return None
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


@dataclass(slots=True)
class CostMeter:
    """Meter of what ticks cost, on the driver. exchanges: their names, by number."""

    spark: SparkSession | None = None
    exchanges: tuple[str, ...] = ()
    _driver: float = field(default_factory=time.process_time)
    _jvm: float | None = None

    def __post_init__(self) -> None:
        self._jvm = self._jvm_seconds()

    def lap(self, tasks: Iterable[Report]) -> Cost:
        """Return what was spent since the last lap, tasks included."""
        driver, jvm = time.process_time(), self._jvm_seconds()
        phases, exchanges = dict.fromkeys(get_args(Phase), 0.0), Counter[str]()
        workers, shuffled = 0.0, 0
        memory: int | None = None
        for seconds, by_phase, rows, size, most in tasks:
            workers += seconds
            memory = max(memory or 0, most or 0) or None
            for phase, part in by_phase.items():
                phases[phase] += part
            shuffled += size
            for number, count in rows.items():
                exchanges[self._name(number)] += count
        spent = None if jvm is None or self._jvm is None else jvm - self._jvm
        cost = Cost(driver - self._driver, spent, workers, phases, dict(exchanges), shuffled, memory)
        self._driver, self._jvm = driver, jvm
        return cost

    def _name(self, exchange: int) -> str:
        return self.exchanges[exchange] if exchange < len(self.exchanges) else str(exchange)

    def _jvm_seconds(self) -> float | None:
        """Return the processor time of the JVM that this process has started, if the system says it."""
        gateway: Any = getattr(getattr(self.spark, "_sc", None), "_gateway", None)
        process: Any = getattr(gateway, "proc", None)
        try:
            text = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii", errors="replace")
        except (OSError, AttributeError):
            return None
        # The second field is the name, which may hold blanks; user and system time are the 14th and 15th.
        fields = text.rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND
