"""What the demonstration shows while it runs: progress, and the averages as they change."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import penstock as ps
from examples.nexmark.queries import CategoryAverage

Changes = Iterable[ps.Change[CategoryAverage]]


class Screen:
    """Live on a terminal; elsewhere a line per tick.

    `changed` is a sink of the flow, `ticked` is told of each tick after that.
    """

    def __init__(self, console: Console, ticks: int) -> None:
        self.averages: dict[int, float] = {}
        self._console = console
        self._corrections = 0
        self._latest: dict[int, float] = {}
        self._rows = 0
        self._seconds: list[float] = []
        self._progress = Progress(
            TextColumn("tick"),
            MofNCompleteColumn(),
            BarColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
            console=console,
        )
        self._task = self._progress.add_task("", total=ticks)
        self._live = Live(self._picture(), console=console, auto_refresh=False, transient=False)

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()
        elif kind is None:
            self._console.print(self._picture())

    def changed(self, _: int, changes: Changes) -> None:
        """Apply the changes of a tick: a row taken back is the answer given before."""
        before = dict(self.averages)
        for row, weight in sorted(changes, key=lambda change: change.weight):
            if weight < 0:
                assert self.averages.pop(row.category) == row.average
                self._corrections += 1
            else:
                self.averages[row.category] = row.average
        self._latest = {c: average - before.get(c, 0.0) for c, average in self.averages.items()}

    def ticked(self, rows: int, seconds: float) -> None:
        """A tick has ended: how many rows of input it had and how long it took."""
        self._rows += rows
        self._seconds.append(seconds)
        self._progress.update(self._task, advance=1, description=self.speed)
        if self._console.is_terminal:
            self._live.update(self._picture(), refresh=True)
        else:
            first = ", ".join(f"{c}: {a / 100:,.2f}" for c, a in sorted(self.averages.items())[:2])
            self._console.print(
                f"tick {len(self._seconds):>3}  {self.speed}  averages {first}, ...", soft_wrap=True
            )

    @property
    def speed(self) -> str:
        """Latency and throughput so far."""
        if not self._seconds:
            return ""
        latest, median = self._seconds[-1] * 1000, statistics.median(self._seconds) * 1000
        rate = self._rows / sum(self._seconds)
        return f"{latest:,.0f} ms (median {median:,.0f}), {rate:,.0f} rows/s"

    def _picture(self) -> Group:
        corrections = f"{self._corrections} answers taken back and replaced so far"
        return Group(self._table(), corrections, *([self._progress] if self._console.is_terminal else []))

    def _table(self) -> Table:
        table = Table(title="Average closing price by category", title_justify="left")
        table.add_column("category", justify="right")
        table.add_column("average", justify="right")
        table.add_column("this tick", justify="right")
        for category, average in sorted(self.averages.items()):
            step = self._latest.get(category, 0.0)
            table.add_row(str(category), f"{average / 100:,.2f}", f"{step / 100:+,.2f}" if step else "")
        return table
