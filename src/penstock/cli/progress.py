"""A line that shows how a run goes, on a terminal; nothing elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol


class TickDone(Protocol):
    """What every engine's progress has."""

    @property
    def tick(self) -> int: ...
    @property
    def rows_in(self) -> int: ...
    @property
    def changes_out(self) -> int: ...
    @property
    def seconds(self) -> float: ...


@dataclass
class Pace:
    """Sums over a run, and its speed over all of the time since the first tick began."""

    began: float = field(default_factory=time.perf_counter)
    ticks: int = 0
    rows: int = 0
    changes: int = 0
    busy: float = 0.0

    def add(self, done: TickDone) -> None:
        self.ticks += 1
        self.rows += done.rows_in
        self.changes += done.changes_out
        self.busy += done.seconds

    def line(self, done: TickDone) -> str:
        """Tick, rows, rows per second of work, and how long the last tick and the average took."""
        speed = self.rows / self.busy if self.busy else 0
        mean = self.busy / self.ticks
        return (
            f"tick {done.tick}   {self.rows:,} rows in, {self.changes:,} changes out   "
            f"{speed:,.0f} rows/s   {duration(done.seconds)} this tick, {duration(mean)} on average"
        )


def duration(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    return f"{seconds * 1000:.1f} ms" if seconds < 1 else f"{seconds:.1f} s"


@contextmanager
def shown_progress() -> Iterator[Callable[[Any], None]]:
    """A function to call after each tick. Standard error is the screen; standard output stays the sinks'."""
    if not sys.stderr.isatty():
        yield lambda _done: None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    pace = Pace()
    # Redirected, printed rows would land on standard error: only where both are the same screen.
    with Live(
        console=Console(stderr=True), redirect_stdout=sys.stdout.isatty(), refresh_per_second=8
    ) as live:

        def on_tick(done: TickDone) -> None:
            pace.add(done)
            live.update(Text(pace.line(done), no_wrap=True, overflow="ellipsis"))

        yield on_tick
