"""Streaming query of a run, which decides when a tick runs and on which rows.

Spark numbers its batches and repeats the last one after a crash; a batch with a commit has already been
processed. Ticks without arrivals (for deferred rows, or if all sources are static) are started by this
module.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from penstock.errors import CheckpointDamaged, FlowChanged
from penstock.spark.sources.arrival_files import arrivals_folder
from penstock.spark.sources.names import source_names
from penstock.spark.sources.opening import (
    OpenedSource,
    end_of_sources,
    placeholder_row,
    union_columns,
    union_of,
)
from penstock.spark.ticks.errors import error_of
from penstock.spark.ticks.lag import Arrivals, Lag
from penstock.spark.ticks.listener import listening
from penstock.spark.ticks.ticker import Ticker
from penstock.state.manifest import Manifest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from penstock.engine.interrupt import Interrupt
    from penstock.state.checkpoint import Checkpoint

_LOOK_EVERY = "100 milliseconds"
"""Interval at which Spark checks for new input."""

_LOOK_AGAIN = 0.1
"""Seconds between two checks for signals, and for whether an idle query has work."""


class Query:
    """The sources of a run as a sequence of ticks."""

    def __init__(
        self,
        spark: SparkSession,
        ticker: Ticker,
        opened: list[OpenedSource],
        follow: bool,
        end: bool,
        named: bool,
    ) -> None:
        self._spark = spark
        self._ticker = ticker
        self._shape = union_columns(opened)
        checkpoint = ticker.checkpoint
        read = _sources_of(checkpoint)
        static = (s.frame for s in opened if s.static and s.input.name not in read)
        # Static rows that no tick has had, for the first one of this run.
        self._static = union_of(static, self._shape)
        self._begun_at = checkpoint.tick
        self._arriving = union_of((s.frame for s in opened if not s.static), self._shape)
        self._tickets = [s.tickets for s in opened if s.tickets is not None] if follow else []
        self._follow = follow
        # Sources that are done: the static ones from the first tick on, and in the end all.
        self._static_names = frozenset(s.input.name for s in opened if s.static)
        self._names = frozenset(s.input.name for s in opened)
        self._end = end
        self._named = named
        self._drained = self._arriving is None
        folder = ticker.plan.folder
        arriving = (s.input.name for s in opened if not s.static and s.input.reading is not None)
        ticker.lag = Lag({name: Arrivals(arrivals_folder(folder, name)) for name in arriving})
        self._failure: BaseException | None = None
        self._stopping = False

    def until_done(self, interrupt: Interrupt) -> None:
        """Run ticks until the sources end with nothing deferred, or a signal arrives.

        Raises the errors of ticks.
        """
        if self._arriving is not None:
            self._stream(self._arriving, interrupt)
        while self._is_due and interrupt.signal is None:
            self._tick_without_arrivals()

    @property
    def _is_due(self) -> bool:
        """Return whether a tick is due even without arrivals.

        This covers static rows, output of the first tick, deferred rows, and ending sources.
        """
        ticker = self._ticker
        first = ticker.checkpoint.last is None
        begins = first and self._drained and ticker.plan.begins
        return self._due_static is not None or begins or bool(ticker.pending) or bool(self._ending())

    @property
    def _due_static(self) -> DataFrame | None:
        """Static rows to read in the next tick."""
        return self._static if self._ticker.checkpoint.tick == self._begun_at else None

    def _ending(self) -> frozenset[str]:
        """Return the sources that end with the next tick if it has no arrivals."""
        ticker = self._ticker
        if not self._end or ticker.pending or self._due_static is not None:
            return frozenset()
        done = self._names if self._drained else self._static_names
        return (done & ticker.ends.awaited) - ticker.ended

    def _tick_without_arrivals(self) -> None:
        ticker = self._ticker
        last = ticker.checkpoint.last
        rows = placeholder_row(self._spark, self._shape)
        if self._due_static is not None:
            rows = rows.union(self._due_static)
        ending = self._ending()
        for operator in ticker.ends.told_by(ticker.ended, ending):
            rows = rows.union(end_of_sources(self._spark, self._shape, operator))
        ticker.run(rows, self._positions(None) if last is None else last.positions, ending)

    def _stream(self, arriving: DataFrame, interrupt: Interrupt) -> None:
        location = self._ticker.plan.folder / "source"
        self._check_positions_are_there()
        writer = arriving.writeStream.foreachBatch(self._batch).option("checkpointLocation", str(location))
        if self._follow:
            writer = writer.trigger(processingTime=_LOOK_EVERY)
        else:
            writer = writer.trigger(availableNow=True)
        with self._told_once():
            with source_names(self._spark, self._named):
                query = writer.start()
            self._ticker.lag.query = query
            try:
                with listening(self._spark, query, self._ticker.metrics):
                    self._watch(query, interrupt)
            finally:
                self._stop(query)

    @contextmanager
    def _told_once(self) -> Iterator[None]:
        # What a tick raises goes through Java and back: Py4J would log it on the way, and `run` raises it.
        def is_other(record: logging.LogRecord) -> bool:
            return record.exc_info is None or not isinstance(
                record.exc_info[1], (_Stopped, type(self._failure))
            )

        logger = logging.getLogger("py4j.clientserver")
        logger.addFilter(is_other)
        try:
            yield
        finally:
            logger.removeFilter(is_other)

    def _watch(self, query: StreamingQuery, interrupt: Interrupt) -> None:
        try:
            idle = 0
            while query.isActive and interrupt.signal is None and self._failure is None:
                interrupt.wait(_LOOK_AGAIN)
                for tickets in self._tickets:
                    tickets.look(may_be_none=True)
                idle = 0 if query.status["isTriggerActive"] and query.status["isDataAvailable"] else idle + 1
                if self._follow and idle > 1 and self._is_due:
                    with self._ticker.lock:
                        if self._is_due:
                            self._tick_without_arrivals()
            if self._failure is None and interrupt.signal is None:
                query.awaitTermination()
                self._drained = True
        except Exception as error:
            # The query's own error quotes ours as text; ours comes first.
            if self._failure is None:
                ours = error_of(error)
                if ours is None:
                    raise
                raise ours from error
        if self._failure is not None:
            raise self._failure

    def _stop(self, query: StreamingQuery) -> None:
        # Between two ticks: stopping in the middle of one would break off its job.
        with self._ticker.lock:
            self._stopping = True
            with suppress(Exception):
                query.stop()

    def _batch(self, rows: DataFrame, batch: int) -> None:
        with self._ticker.lock:
            if self._stopping or self._failure is not None:
                # Not committed and not to be marked as done: it comes again.
                raise _Stopped
            last = self._ticker.checkpoint.last
            done = last.positions.get("batch") if last is not None and last.positions else None
            if done is not None and batch <= done:
                return
            if self._due_static is not None:
                rows = rows.union(self._due_static)
            try:
                self._ticker.run(rows, self._positions(batch))
            except BaseException as failure:
                self._failure = failure
                raise

    def _positions(self, batch: int | None) -> dict[str, Any]:
        return {"batch": batch, "query": self._query_id()}

    def _query_id(self) -> str | None:
        metadata = self._ticker.plan.folder / "source" / "metadata"
        return metadata.read_text() if metadata.is_file() else None

    def _check_positions_are_there(self) -> None:
        last = self._ticker.checkpoint.last
        if last is not None and last.positions.get("own"):
            raise FlowChanged(
                "the checkpoint was last gone on with over Spark Connect",
                why="Spark itself has no account of what those ticks have read, and would read it again.",
                fix="go on over Spark Connect, or start from an empty checkpoint",
                checkpoint=str(self._ticker.plan.folder),
            )
        if last is None or last.positions.get("query") in (None, self._query_id()):
            return
        folder = self._ticker.plan.folder / "source"
        raise CheckpointDamaged(
            "the checkpoint has lost the positions of its sources",
            why=f"{folder} is missing, or is not the one that tick {last.tick} was taken from.",
            fix="restore the checkpoint folder from a backup, or start from an empty one",
            file=str(folder),
        )


def _sources_of(checkpoint: Checkpoint) -> list[str]:
    """Return the sources read by the ticks so far."""
    last = checkpoint.last
    return [] if last is None else Manifest.read(checkpoint.folder, last.manifest).layout["sources"]


class _Stopped(Exception):
    """Exception that stops the query's thread between two ticks."""
