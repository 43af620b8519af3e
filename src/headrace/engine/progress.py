"""Progress of a run after each tick, and its result."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.errors import SourceLocation, WrongType
from headrace.expr.expression_errors import check_function
from headrace.shown import Shown

if TYPE_CHECKING:
    from headrace.io.keyed_tables import HeldBack

Time: TypeAlias = datetime | int | float
"""An event time: a UTC timestamp, or a number in the flow's own unit."""


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """Number of rows that a tick took from a source, and the source's backlog if known.

    rows:    number of rows taken in this tick.
    waiting: files, or batches of given rows, that were found and not taken yet; None if unknown.
    newest:  when the newest input was found, in seconds since 1970; None if unknown.
    backlog: backlog as reported by a DataFrame's connector in Spark's terms (Kafka's
             `maxOffsetsBehindLatest`, say), as of the previous batch.
    """

    rows: int
    waiting: int | None = None
    newest: float | None = None
    backlog: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of a tick on Spark, and the rows and bytes exchanged between its stages.

    driver:    of this process since the tick before. jvm: of the JVM that it started; None where the system
               does not say it.
    workers:   of the Python workers, as far as they ran tasks of the tick.
    phases:    of the workers' time: "read" (from Spark and from files), "compute", "load state",
               "write state", "exchange" (dividing, encoding and decoding rows between stages) and
               "write" (sinks); the rest is Spark's own Python, and the start of new workers.
    exchanges: rows sent, by what they are, in the words of `explain`.
    shuffled:  bytes of these rows that went through Spark; 0 where the tick ran in one task.
    memory:    most bytes that a worker has had in memory so far; None where the system does not say.
    """

    driver: float
    jvm: float | None
    workers: float
    phases: Mapping[str, float] = field(default_factory=dict[str, float])
    exchanges: Mapping[str, int] = field(default_factory=dict[str, int])
    shuffled: int = 0
    memory: int | None = None

    @property
    def total(self) -> float:
        """CPU seconds of all processes; the JVM's only if known."""
        return self.driver + (self.jvm or 0.0) + self.workers


@dataclass(frozen=True, slots=True)
class RegionTime:
    """Time that a tick spent in one region of the flow, in this process.

    nodes:    ids of its operators, in execution order.
    seconds:  wall-clock time of its function.
    rows_in, rows_out: rows that entered and left the region.
    """

    nodes: tuple[int, ...]
    seconds: float
    rows_in: int
    rows_out: int


@dataclass(frozen=True, slots=True)
class Observer:
    """Observer of a run in more detail than `on_tick`, for tools.

    on_changes: callback after each published tick with its number and its changes per sink: internal rows
                with the weight last, not to be modified. On Spark, sinks that tasks write are missing.
    region_interval: seconds between two ticks whose regions are timed (`Progress.regions`); in-process only.
    on_start:   callback before the first tick, once sources, sinks and the checkpoint are open.
    """

    on_changes: Callable[[int, Mapping[str, list[tuple[Any, ...]]]], object]
    region_interval: float = 0.5
    on_start: Callable[[], object] = lambda: None


@dataclass(frozen=True, slots=True)
class Progress(Shown):
    """Report on a tick, and the state of the run after it.

    tick:        number of the tick, from 1; a restarted run continues the count.
    rows_in:     rows taken from all sources. set_aside: rows that went to dead letters.
    changes_out: changes given to all sinks.
    seconds:     time from the first row read (on Spark, from the start of the job) to the last sink's
                 confirmation, including the commit.
    way:         where the tick ran: "here" for in-process; on Spark, "one task" or "stages".
    sources:     rows taken and backlog per source.
    watermarks:  current watermarks, by operator name; those that have seen no row are left out.
    late:        number of late rows so far, per watermark.
    state_bytes: size of the files that hold the state; None if it is in memory only.
    cost:        of the tick, on Spark.
    regions:     time per region that ran, of ticks that an `Observer` samples.
    """

    tick: int
    rows_in: int
    set_aside: int
    changes_out: int
    seconds: float
    way: str = "here"
    sources: Mapping[str, SourceProgress] = field(default_factory=dict[str, SourceProgress])
    watermarks: Mapping[str, Time] = field(default_factory=dict[str, Time])
    late: Mapping[str, int] = field(default_factory=dict[str, int])
    state_bytes: int | None = None
    cost: Cost | None = None
    regions: tuple[RegionTime, ...] = ()

    @property
    def rows_per_second(self) -> float:
        """Rows taken per second of this tick."""
        return self.rows_in / self.seconds if self.seconds else 0.0

    @property
    def waiting(self) -> int | None:
        """Total backlog of the sources that report one; None if none does."""
        known = [source.waiting for source in self.sources.values() if source.waiting is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class RunResult(Shown):
    """Result of a run.

    last_tick:  number of the last tick; with a checkpoint, the last one it contains.
    ticks:      number of ticks in this run. All totals are over these ticks.
    stopped_by: signal that ended the run; None if the input ended or all sinks were finished.
    results:    results of the pull-stream sinks, by name.
    held_back:  by table sink, the rows that were retracted more often than inserted, and the sources they
                come from. Empty if there are none.
    """

    last_tick: int
    ticks: int
    rows_in: int
    set_aside: int
    changes_out: int
    stopped_by: signal.Signals | None
    results: Mapping[str, Any] = field(default_factory=dict[str, Any])
    held_back: Mapping[str, HeldBack] = field(default_factory=dict[str, "HeldBack"])


def check_observers(on_tick: object, observer: object, progress: object) -> None:
    """Raise `WrongType` for callbacks that a run could not call, and for an invalid `progress`."""
    location = SourceLocation.of_caller()
    if progress is not None and not isinstance(progress, bool):
        raise WrongType(
            f"progress is True, False or None, got {progress!r:.60}",
            where=[location],
            fix="progress=True shows it; a function of your own goes to on_tick=",
        )
    if on_tick is not None:
        check_function("on_tick", on_tick, ("progress",), location)
    if isinstance(observer, Observer):
        check_function("on_changes", observer.on_changes, ("tick", "changes"), location)
    elif observer is not None:
        raise WrongType(
            f"observer takes an Observer, got {type(observer).__name__}",
            where=[location],
            fix="on_tick=... takes a function of the progress; Observer(...) one of tick and changes",
        )


def combine_observers(
    *observers: Callable[[Progress], object] | None,
) -> Callable[[Progress], object] | None:
    """Combine tick observers into one; None if there are none."""
    found = [each for each in observers if each is not None]
    if len(found) < 2:
        return found[0] if found else None

    def all_of_them(done: Progress) -> None:
        for observe in found:
            observe(done)

    return all_of_them
