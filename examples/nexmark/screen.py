"""What the demonstration shows while it runs: progress, and the averages as they change."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

import headrace as hr
from examples.nexmark.queries import CategoryAverage

Changes = Iterable[hr.Change[CategoryAverage]]


class Screen:
    """Live on a terminal; elsewhere a line per tick.

    `changed` is a sink of the flow, `ticked` is told of each tick after that.
    """

    def __init__(self, console: Console, ticks: int) -> None:
        self.averages: dict[int, float] = {}
        self._console = console
        self._corrections = 0
        self._latest: dict[int, float] = {}
        self._rows: list[int] = []
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
        self._live = Live(self._picture(), console=console)

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
        if kind is None and self._seconds:
            self._console.print(f"{self.summary}.\n", soft_wrap=True)

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
        self._rows.append(rows)
        self._seconds.append(seconds)
        self._progress.update(self._task, advance=1, description=self.speed)
        if self._console.is_terminal:
            self._live.update(self._picture())
        else:
            first = ", ".join(f"{c}: {a / 100:,.2f}" for c, a in sorted(self.averages.items())[:2])
            self._console.print(
                f"tick {len(self._seconds):>3}  {self.speed}  averages {first}, ...", soft_wrap=True
            )

    @property
    def speed(self) -> str:
        """Latency and throughput of the latest tick."""
        seconds = self._seconds[-1]
        return f"{seconds * 1000:,.0f} ms, {self._rows[-1] / seconds:,.0f} rows/s"

    @property
    def summary(self) -> str:
        """Latency and throughput of all ticks."""
        # The first is told apart where there are more: everything starts and warms up in it.
        first, *rest = self._seconds
        seconds, rows = (rest, self._rows[1:]) if rest else ([first], self._rows)
        latency, rate = statistics.median(seconds) * 1000, sum(rows) / sum(seconds)
        text = f"{latency:,.0f} ms per tick (median), {rate:,.0f} rows/s"
        return f"{text}; the first tick, apart from these, took {first * 1000:,.0f} ms" if rest else text

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
