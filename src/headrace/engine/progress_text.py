"""Progress of a run as text: totals, speed, lag, watermarks and state size."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.engine.progress import Cost, Progress, SourceProgress, Time


@dataclass
class RunTotals:
    """Totals of a run, and its speed while ticks were running."""

    began: float = field(default_factory=time.perf_counter)
    ticks: int = 0
    rows: int = 0
    changes: int = 0
    set_aside: int = 0
    busy: float = 0.0

    def add(self, done: Progress) -> None:
        self.ticks += 1
        self.rows += done.rows_in
        self.changes += done.changes_out
        self.set_aside += done.set_aside
        self.busy += done.seconds

    def format_line(self, done: Progress) -> str:
        """Format the tick, rows, rows per second of work, and last and average tick durations."""
        speed = self.rows / self.busy if self.busy else 0
        mean = self.busy / self.ticks
        aside = f", {self.set_aside:,} set aside" if self.set_aside else ""
        way = "" if done.way == "here" else f" in {done.way}" if done.way == "one task" else f" by {done.way}"
        return (
            f"tick {done.tick}   {self.rows:,} rows in, {self.changes:,} changes out{aside}   "
            f"{speed:,.0f} rows/s   {format_duration(done.seconds)} this tick{way}, "
            f"{format_duration(mean)} on average"
        )


def status_parts(done: Progress) -> Iterator[str]:
    """Yield the current lag, watermarks, late rows and state size as short texts."""
    for name, source in done.sources.items():
        lag = format_lag(source)
        if lag:
            yield f"{name}: {lag}"
    for name, mark in done.watermarks.items():
        yield f"{name} at {format_timestamp(mark)}"
    if late := sum(done.late.values()):
        yield f"{late:,} rows late"
    if done.state_bytes is not None:
        yield f"state {format_bytes(done.state_bytes)}"
    if done.cost is not None:
        yield format_cost(done.cost)
        yield from format_exchanges(done.cost)


def format_cost(cost: Cost) -> str:
    """Format the processor time of a tick, by process, and of the workers by phase."""
    jvm = "" if cost.jvm is None else f", JVM {format_duration(cost.jvm)}"
    rest = cost.workers - sum(cost.phases.values())
    phases = ", ".join(
        f"{phase} {share:.0%}"
        for phase, seconds in {**cost.phases, "rest": rest}.items()
        if (share := seconds / (cost.workers or 1.0)) >= 0.01
    )
    workers = f"{format_duration(cost.workers)} ({phases})" if phases else format_duration(cost.workers)
    memory = "" if cost.memory is None else f", up to {format_bytes(cost.memory)} each"
    driver = format_duration(cost.driver)
    return f"CPU {format_duration(cost.total)}: driver {driver}{jvm}, workers {workers}{memory}"


def format_exchanges(cost: Cost) -> Iterator[str]:
    """Yield what travelled between the stages of a tick: rows by exchange, and bytes through Spark."""
    for exchange, rows in cost.exchanges.items():
        yield f"{rows:,} rows of {exchange} sent"
    if cost.shuffled:
        yield f"{format_bytes(cost.shuffled)} shuffled"


def format_lag(source: SourceProgress) -> str:
    """Format the backlog of a source and the age of its newest input; empty if unknown."""
    parts: list[str] = []
    if source.waiting:
        parts.append(f"{source.waiting:,} waiting")
    if source.newest is not None and (idle := time.time() - source.newest) >= 1:
        parts.append(f"newest {format_duration(idle)} ago")
    parts += [f"{key} {value}" for key, value in source.backlog.items()]
    return ", ".join(parts)


def format_timestamp(time: Time) -> str:
    """Format a timestamp: a UTC datetime as 2026-01-02 03:04:05, a number with thousands separators."""
    if isinstance(time, datetime):
        return time.replace(tzinfo=None).isoformat(" ", "milliseconds" if time.microsecond else "seconds")
    return f"{time:,}"


def format_duration(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def format_bytes(count: int) -> str:
    """Format a number of bytes: 1,500,000 is "1.5 MB"."""
    number = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
