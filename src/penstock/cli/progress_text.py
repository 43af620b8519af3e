"""How a run goes, in words: sums, speed, and where it stands."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.engine.progress import Progress, SourceProgress, Time


@dataclass
class RunTotals:
    """Sums over a run, and its speed while it worked."""

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

    def line(self, done: Progress) -> str:
        """Tick, rows, rows per second of work, how long the last tick and the average took."""
        speed = self.rows / self.busy if self.busy else 0
        mean = self.busy / self.ticks
        aside = f", {self.set_aside:,} set aside" if self.set_aside else ""
        way = "" if done.way == "here" else f" in {done.way}" if done.way == "one task" else f" by {done.way}"
        return (
            f"tick {done.tick}   {self.rows:,} rows in, {self.changes:,} changes out{aside}   "
            f"{speed:,.0f} rows/s   {duration(done.seconds)} this tick{way}, {duration(mean)} on average"
        )


def standing(done: Progress) -> Iterator[str]:
    """Where the run stands beside its sums, in pieces: what waits, watermarks, late rows, state."""
    for name, source in done.sources.items():
        lag = lag_of(source)
        if lag:
            yield f"{name}: {lag}"
    for name, mark in done.watermarks.items():
        yield f"{name} at {shown_time(mark)}"
    if late := sum(done.late.values()):
        yield f"{late:,} rows late"
    if done.state_bytes is not None:
        yield f"state {size(done.state_bytes)}"


def lag_of(source: SourceProgress) -> str:
    """What waits of a source, and since when nothing new came; empty where nobody tells."""
    pieces: list[str] = []
    if source.waiting:
        pieces.append(f"{source.waiting:,} waiting")
    if source.newest is not None and (idle := time.time() - source.newest) >= 1:
        pieces.append(f"newest {duration(idle)} ago")
    pieces += [f"{key} {value}" for key, value in source.backlog.items()]
    return ", ".join(pieces)


def shown_time(time: Time) -> str:
    """2026-01-02 03:04:05 of a timestamp (in UTC), and numbers as they are."""
    if isinstance(time, datetime):
        return time.replace(tzinfo=None).isoformat(" ", "milliseconds" if time.microsecond else "seconds")
    return f"{time:,}"


def duration(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = int(seconds // 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h"


def size(count: int) -> str:
    """1.5 MB of 1,500,000 bytes."""
    number = float(count)
    for unit in ("bytes", "kB", "MB", "GB"):
        if number < 1000:
            return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} TB"
