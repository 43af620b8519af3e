"""Ticks over Spark Connect: this process takes arrivals itself, with one bounded read per tick.

A `foreachBatch` function would run in a server process, which has neither the lease nor the sinks of this
one. Each commit records what its tick has read, so Spark's own record is not needed. Therefore only sources
with numbered arrivals can be read this way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.errors import NotOnSpark
from penstock.spark.sources.arrival_files import arrivals_folder, numbered_files
from penstock.spark.sources.opening import OpenedSource, union_of
from penstock.spark.ticks.query import Query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engine.interrupt import Interrupt
    from penstock.spark.ticks.ticker import Ticker

_LOOK_AGAIN = 0.1
"""Seconds between two checks for new input."""


class OwnTicks(Query):
    """The sources of a run as a sequence of ticks, without a streaming query.

    Raises `NotOnSpark` for a source that is a streaming DataFrame.
    """

    def __init__(
        self,
        spark: SparkSession,
        ticker: Ticker,
        opened: list[OpenedSource],
        follow: bool,
        end: bool,
        named: bool,
    ) -> None:
        for source in opened:
            if not source.static and source.input.reading is None:
                raise NotOnSpark(
                    f"source {source.input.name!r} is a streaming DataFrame of Spark Connect",
                    why="Its rows would have to be handed to this process, tick by tick, and the server calls"
                    " functions only in processes of its own.",
                    fix="start the driver where the cluster is (penstock package), or read files that arrive"
                    " in a folder",
                    source=source.input.name,
                )
        super().__init__(spark, ticker, opened, follow, end, named)
        folder = ticker.plan.folder
        self._folders = [
            (tag, source.input.name, arrivals_folder(folder, source.input.name), source.per_tick)
            for tag, source in enumerate(opened)
            if source.input.name in ticker.lag.arrivals
        ]

    def _stream(self, arriving: DataFrame, interrupt: Interrupt) -> None:
        while interrupt.signal is None:
            for tickets in self._tickets:
                tickets.look(may_be_none=True)
            rows = self._next()
            if rows is not None:
                self._ticker.run(rows, self._positions(None))
            elif not self._follow:
                self._drained = True
                return
            elif self._is_due:
                self._tick_without_arrivals()
            else:
                interrupt.wait(_LOOK_AGAIN)

    def _next(self) -> DataFrame | None:
        """Return the arrivals of the next tick; None if there are none."""
        taken = self._ticker.arrived
        found: list[tuple[int, str, None]] = []
        for tag, name, folder, per_tick in self._folders:
            arrivals = self._ticker.lag.arrivals[name]
            arrivals.look()
            first = taken.get(name, 0)
            last = arrivals.count if per_tick is None else min(arrivals.count, first + per_tick)
            found += [(tag, str(numbered_files(folder, number)), None) for number in range(first, last)]
        if not found:
            return None
        rows = self._spark.createDataFrame(found, "tag int, path string, place long")
        static = self._due_static
        return union_of([rows] if static is None else [rows, static], self._shape)

    def _positions(self, batch: int | None) -> dict[str, Any]:
        return {"batch": None, "query": None, "own": True}
