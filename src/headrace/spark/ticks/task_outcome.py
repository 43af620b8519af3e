"""Task results sent to the driver: names and numbers, and rows only for driver-side sinks.

chain   (cell, chain as JSON text, pending, waiting)   the version of a cell that the tick would make
file    (sink, staged name, rows)              a file written for a sink
rows    (sink, rows)                           changes for a sink that lives in the driver
taken   (source, rows)                         rows read
bad     (source, record)                       a row set aside
widened (source, column, ...)                  a column of a file that is narrower than declared
rounds  (rows by exchange, ...)                what went back after each round that a task ran for the driver
cost    what a task cost, see `headrace.spark.ticks.task_outcome.TaskCostReport`
clock   (operator, watermark, late rows)       where a watermark stands now
error   (stage, pickled error)                 why the tick cannot be
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

from headrace.engine.progress import Cost
from headrace.errors import HeadraceError
from headrace.expr.types import Rows
from headrace.io.files.file_reader import Widened
from headrace.io.source import BadRecord
from headrace.spark.ticks.messages import TaskResult
from headrace.state.chain import BatchChain

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


@dataclass(slots=True)
class TickOutcome:
    """Combined results of a tick's tasks.

    passing: state files needed only by later jobs of the same tick.
    """

    chains: dict[int, BatchChain] = field(default_factory=dict[int, BatchChain])
    pending: set[int] = field(default_factory=set[int])
    waiting: set[int] = field(default_factory=set[int])
    files: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    rows: dict[str, Rows] = field(default_factory=dict[str, Rows])
    changes: dict[str, int] = field(default_factory=dict[str, int])
    taken: dict[str, int] = field(default_factory=dict[str, int])
    bad: dict[str, list[BadRecord]] = field(default_factory=dict[str, list[BadRecord]])
    widened: list[Widened] = field(default_factory=list[Widened])
    clocks: dict[str, tuple[Any, int]] = field(default_factory=dict[str, tuple[Any, int]])
    passing: set[str] = field(default_factory=set[str])
    costs: list[Any] = field(default_factory=list[Any])


def chain_result(cell: int, chain: BatchChain, pending: bool, waiting: bool) -> TaskResult:
    return TaskResult("chain", (cell, json.dumps(chain.to_json()), pending, waiting))


def bad_result(source: str, record: BadRecord) -> TaskResult:
    return TaskResult("bad", (source, astuple(record)))


def error_result(stage: int, error: HeadraceError) -> TaskResult:
    from pyspark import cloudpickle

    try:
        content: bytes = cloudpickle.dumps(error)
    except Exception:
        plain = type(error)(error.what, where=error.where, why=error.why, fix=error.fix)
        content = cloudpickle.dumps(plain)
    return TaskResult("error", (stage, content))


def gathered(results: Iterable[TaskResult]) -> TickOutcome:
    """Combine results into one outcome. Raises the error of the earliest stage, if a task reported one."""
    outcome = TickOutcome()
    errors: list[tuple[int, bytes]] = []
    for result in results:
        match result.kind, result.body:
            case "error", (stage, content):
                errors.append((stage, content))
            case "chain", (cell, text, pending, waiting):
                outcome.chains[cell] = BatchChain.from_json(json.loads(text))
                if pending:
                    outcome.pending.add(cell)
                if waiting:
                    outcome.waiting.add(cell)
            case "file", (sink, name, count):
                outcome.files.setdefault(sink, []).append(name)
                outcome.changes[sink] = outcome.changes.get(sink, 0) + count
            case "rows", (sink, rows):
                outcome.rows.setdefault(sink, []).extend(rows)
                outcome.changes[sink] = outcome.changes.get(sink, 0) + len(rows)
            case "taken", (source, count):
                outcome.taken[source] = outcome.taken.get(source, 0) + count
            case "bad", (source, record):
                outcome.bad.setdefault(source, []).append(BadRecord(*record))
            case "widened", column:
                outcome.widened.append(Widened(*column))
            case "clock", (operator, watermark, late):
                outcome.clocks[operator] = (watermark, late)
            case "cost", cost:
                outcome.costs.append(cost)
            case "rounds", _:
                pass  # `rounds_of` reads these
            case _:
                raise AssertionError(f"unknown kind of result: {result.kind}")
    if errors:
        # Later stages ran on half of the rows; what they say follows from the first error.
        raise pickle.loads(min(errors)[1])
    return outcome


Phase: TypeAlias = Literal["read", "compute", "load state", "write state", "exchange", "write"]
TaskCostReport: TypeAlias = "tuple[float, Mapping[str, float], Mapping[int, int], int, int | None]"
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

    def result(self) -> TaskCostReport:
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

    def lap(self, tasks: Iterable[TaskCostReport]) -> Cost:
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
