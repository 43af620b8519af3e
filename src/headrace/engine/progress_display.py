"""Progress of a run: as text, as a bar in notebooks, as an updating block on a terminal, as lines elsewhere.

Outside of notebooks it is written to standard error, because standard output belongs to the sinks.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, TextIO

from headrace.errors import SourceLocation
from headrace.requirements import require_package
from headrace.shown import in_notebook

if TYPE_CHECKING:
    from rich.console import Group

    from headrace.engine.progress import Cost, Progress, SourceProgress, Time


@dataclass
class RunTotals:
    """Totals of a run, and its speed without the time between ticks."""

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
    """Format the CPU time of a tick by process, and the workers' share of each phase."""
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
    """Yield the rows sent over each exchange of a tick, and the bytes shuffled by Spark."""
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


SECONDS_BETWEEN_LINES = 30.0
"""Interval between lines in a log, unless a line per tick is requested."""
SECONDS_WITHOUT_BAR = 0.5
"""Duration of a run that shows no bar in a notebook, unless one is requested."""


@contextmanager
def run_display(wanted: bool | None, flow: str) -> Generator[Callable[[Progress], object] | None]:
    """Return a callback that shows the progress of `headrace.run`, or None if nothing is shown.

    wanted: None shows a bar in a notebook with tqdm, once a run takes long, and nothing elsewhere; True shows
            the bar from the start, and elsewhere what `progress_reporter` shows; False shows nothing.

    Raises `BadInput` if it is wanted and a package is missing.
    """
    if wanted is False or (wanted is None and not (in_notebook() and find_spec("tqdm"))):
        yield None
    elif in_notebook():
        with _bar(flow, 0.0 if wanted else SECONDS_WITHOUT_BAR) as on_tick:
            yield on_tick
    else:
        if sys.stderr.isatty():
            require_package("progress=True", "rich", "cli", SourceLocation.of_caller())
        with progress_reporter(True) as on_tick:
            yield on_tick


@contextmanager
def _bar(flow: str, delay: float) -> Generator[Callable[[Progress], object]]:
    require_package("progress=True", "tqdm", "notebook", SourceLocation.of_caller())
    from tqdm.auto import tqdm

    made: Any = tqdm(desc=flow, unit=" rows", unit_scale=True, delay=delay)
    with made as bar:

        def on_tick(done: Progress) -> None:
            bar.set_postfix_str(", ".join([f"tick {done.tick:,}", *status_parts(done)]), refresh=False)
            bar.update(done.rows_in)

        yield on_tick


@contextmanager
def progress_reporter(wanted: bool | None = None) -> Generator[Callable[[Any], None]]:
    """Return a callback that shows progress after each tick.

    wanted: None shows a block on a terminal, and occasional lines elsewhere; True shows a line per tick
            elsewhere; False shows nothing.
    """
    if wanted is False:
        yield lambda _done: None
    elif not sys.stderr.isatty():
        yield ThrottledLinePrinter(sys.stderr, 0.0 if wanted else SECONDS_BETWEEN_LINES)
    else:
        with _on_terminal() as on_tick:
            yield on_tick


class ThrottledLinePrinter:
    """Printer of a line per tick, at most one every `between` seconds."""

    def __init__(self, out: TextIO, between: float, clock: Callable[[], float] = time.perf_counter) -> None:
        self._out = out
        self._between = between
        self._clock = clock
        self._pace = RunTotals()
        self._last = clock()

    def __call__(self, done: Progress) -> None:
        self._pace.add(done)
        now = self._clock()
        if now - self._last >= self._between:
            self._last = now
            parts = (self._pace.format_line(done), *status_parts(done))
            self._out.write("   ".join(parts) + "\n")
            self._out.flush()


@contextmanager
def _on_terminal() -> Generator[Callable[[Any], None]]:
    from rich.console import Console
    from rich.live import Live

    pace = RunTotals()
    # Redirection would send printed rows to standard error, so redirect only if both are the same terminal.
    with Live(
        # Source names may hold brackets and colons, which are not markup.
        console=Console(stderr=True, markup=False, emoji=False),
        redirect_stdout=sys.stdout.isatty(),
        refresh_per_second=8,
    ) as live:

        def on_tick(done: Progress) -> None:
            pace.add(done)
            live.update(format_progress_block(pace, done))

        yield on_tick


def format_progress_block(pace: RunTotals, done: Progress) -> Group:
    """Format the block: a line with the speed, then one per source, one of watermarks and one of state."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 2))
    if len(done.sources) > 1 or any(map(format_lag, done.sources.values())):
        for name, source in done.sources.items():
            table.add_row(f"  {name}", f"{source.rows:,} rows", format_lag(source))
    for name, mark in done.watermarks.items():
        late = done.late.get(name, 0)
        table.add_row(f"  {name}", format_timestamp(mark), f"{late:,} late" if late else "")
    if done.state_bytes is not None:
        table.add_row(
            "  state",
            format_bytes(done.state_bytes),
            f"running for {format_duration(time.perf_counter() - pace.began)}",
        )
    line = Text(pace.format_line(done), no_wrap=True, overflow="ellipsis")
    cost = [] if done.cost is None else [format_cost(done.cost), *format_exchanges(done.cost)]
    lines = [Text(f"  {text}", no_wrap=True, overflow="ellipsis") for text in cost]
    return Group(line, *([table] if table.row_count else []), *lines)
