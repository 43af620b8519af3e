"""The sources of a run as a sequence of ticks.

Input that the driver finds itself (files, given rows, table versions) is taken by this module, tick by tick.
Streaming DataFrames are one streaming query, whose batches are ticks, too: then a batch also takes what was
found otherwise. Spark numbers its batches and repeats the last one after a crash; a batch with a commit has
already been processed.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from headrace.errors import CheckpointDamaged, NotOnSpark
from headrace.spark.session import is_remote
from headrace.spark.sources.arrivals import SourcePositions
from headrace.spark.sources.opening import OpenedSource, named_sources_enabled, union_columns, union_of
from headrace.spark.sources.tick_input import Located, TickInput, batch_rows
from headrace.spark.ticks.failures import error_of
from headrace.spark.ticks.ticker import SourceBacklog, Ticker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.engine.interrupt import Interrupt
    from headrace.engine.prometheus import RunMetrics


_LOOK_EVERY = "100 milliseconds"
"""Interval at which Spark checks for new input."""

_LOOK_AGAIN = 0.1
"""Seconds between two checks for signals, for input, and for whether an idle query has work."""

_POSITIONS = "source"
"""Folder of a checkpoint with Spark's own positions of streaming DataFrames."""

GIVEN = "given"
"""Folder of a checkpoint with given rows on their way to the tasks of a tick."""


class Query:
    """Sequence of the ticks of a run.

    read: the sources that earlier ticks have read; a static one among them is complete.

    Raises `NotOnSpark` for a streaming DataFrame of Spark Connect.
    """

    def __init__(
        self,
        spark: SparkSession | None,
        ticker: Ticker,
        opened: list[OpenedSource],
        positions: SourcePositions,
        read: Iterable[str],
        *,
        follow: bool,
        end: bool,
        named: bool,
    ) -> None:
        self._spark = spark
        self._ticker = ticker
        self._positions = positions
        shape = union_columns(opened)
        # Static input that no tick has had, for the first one of this run.
        static = [s for s in opened if s.static and (s.every_run or s.input.name not in read)]
        frame = union_of((s.frame for s in static if s.frame is not None), shape)
        located = [found for s in static for found in s.located]
        batches = [s.batch for s in static if s.batch is not None]
        self._static = TickInput(located, (), () if frame is None else [(frame, None)], batches)
        self._begun_at = ticker.checkpoint.tick
        streams = [s for s in opened if not s.static and s.frame is not None]
        if spark is not None and streams and is_remote(spark):
            raise _on_connect(streams[0].input.name)
        self._streams = union_of((s.frame for s in streams if s.frame is not None), shape)
        self._arrivals = [(tag, s.arrivals) for tag, s in enumerate(opened) if s.arrivals is not None]
        # Where nothing more can come, nothing is waited for.
        self._follow = follow and (bool(streams) or any(not found.ends for _, found in self._arrivals))
        # Sources that are done: the static ones from the first tick on, and in the end all.
        self._static_names = frozenset(s.input.name for s in opened if s.static)
        self._names = frozenset(s.input.name for s in opened)
        self._end = end
        self._named = named
        self._drained = False
        ticker.lag = SourceBacklog({opened[tag].input.name: arrivals for tag, arrivals in self._arrivals})
        self._failure: BaseException | None = None
        self._stopping = False

    def until_done(self, interrupt: Interrupt) -> None:
        """Run ticks until the sources end with nothing deferred, or a signal arrives.

        Raises the errors of ticks.
        """
        if self._streams is not None:
            self._stream(self._streams, interrupt)
            if self._follow:
                return  # somebody has stopped the query
        while interrupt.signal is None:
            if self._tick_without_batch():
                continue
            if not self._follow:
                if self._drained:
                    return
                self._drained = True  # which may make a tick due
            else:
                interrupt.wait(_LOOK_AGAIN)

    @property
    def _is_due(self) -> bool:
        """Return whether a tick is due even without new input.

        This covers static rows, output of the first tick, deferred rows, and ending sources.
        """
        ticker = self._ticker
        first = ticker.checkpoint.last is None
        begins = first and self._drained and ticker.plan.begins
        return bool(self._due_static) or begins or bool(ticker.pending) or bool(self._ending())

    @property
    def _due_static(self) -> TickInput:
        """Static input to read in the next tick."""
        return self._static if self._ticker.checkpoint.tick == self._begun_at else TickInput()

    def _ending(self) -> frozenset[str]:
        """Return the sources that end with the next tick if it has no new input."""
        ticker = self._ticker
        if not self._end or ticker.pending or self._due_static:
            return frozenset()
        done = self._names if self._drained else self._static_names
        return (done & ticker.ends.awaited) - ticker.ended

    def _tick_without_batch(self) -> bool:
        """Run a tick on new input, or one due for another reason. Returns False if no tick is due."""
        with self._ticker.lock, self._failing():
            if self._failure is not None:
                return False
            found = self._take()
            if not found and not self._is_due:
                return False
            self._tick_on(found)
        return True

    def _tick_on(self, found: list[Located]) -> None:
        ending = frozenset[str]() if found else self._ending()
        ended = [*self._ticker.ends.ended_operators(self._ticker.ended, ending)]
        last = self._ticker.checkpoint.last
        positions = self._batch_of(None) if last is None else last.positions
        self._tick(TickInput(found, ended), positions, ending)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """End the run on failure, so that no later tick commits anything of the failed one."""
        try:
            yield
        except BaseException as failure:
            self._failure = failure
            self._positions.discard()
            raise

    def _take(self) -> list[Located]:
        """Take the input found by the driver for the next tick."""
        found: list[Located] = []
        for tag, arrivals in self._arrivals:
            if self._follow:
                arrivals.look()
            found += [(tag, location, place) for place, location in enumerate(arrivals.take())]
        return found

    def _tick(self, given: TickInput, batch: Any, ending: Iterable[str] = ()) -> None:
        positions = self._positions.write(self._ticker.checkpoint.tick + 1)
        self._ticker.run(self._spark, given + self._due_static, batch, ending, sources=positions)
        self._positions.advance(positions)
        shutil.rmtree(self._ticker.plan.folder / GIVEN, ignore_errors=True)

    def _stream(self, streams: DataFrame, interrupt: Interrupt) -> None:
        location = self._ticker.plan.folder / _POSITIONS
        self._check_positions_are_there()
        writer = streams.writeStream.foreachBatch(self._batch).option("checkpointLocation", str(location))
        if self._follow:
            writer = writer.trigger(processingTime=_LOOK_EVERY)
        else:
            writer = writer.trigger(availableNow=True)
        with self._without_py4j_log():
            with named_sources_enabled(streams.sparkSession, self._named):
                query = writer.start()
            self._ticker.lag.query = query
            try:
                with record_phases(streams.sparkSession, query, self._ticker.metrics):
                    self._watch(query, interrupt)
            finally:
                self._stop(query)

    @contextmanager
    def _without_py4j_log(self) -> Iterator[None]:
        # A tick's error passes through Java and back: Py4J would log it, although `run` raises it anyway.
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
                idle = 0 if query.status["isTriggerActive"] and query.status["isDataAvailable"] else idle + 1
                if self._follow and idle > 1:
                    self._tick_without_batch()
            if self._failure is None and interrupt.signal is None:
                query.awaitTermination()
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
            with self._failing():
                count = batch_rows(self._ticker.plan.folder / _POSITIONS, batch)
                given = TickInput(self._take(), frames=[(rows, count)])
                self._tick(given, self._batch_of(batch))

    def _batch_of(self, batch: int | None) -> dict[str, Any]:
        return {"batch": batch, "query": self._query_id()}

    def _query_id(self) -> str | None:
        metadata = self._ticker.plan.folder / _POSITIONS / "metadata"
        return metadata.read_text() if metadata.is_file() else None

    def _check_positions_are_there(self) -> None:
        last = self._ticker.checkpoint.last
        if last is None or last.positions.get("query") in (None, self._query_id()):
            return
        folder = self._ticker.plan.folder / _POSITIONS
        raise CheckpointDamaged(
            "the checkpoint has lost the positions of its sources",
            why=f"{folder} is missing, or is not the one that tick {last.tick} was taken from.",
            fix="restore the checkpoint folder from a backup, or start from an empty one",
            file=str(folder),
        )


def _on_connect(source: str) -> NotOnSpark:
    return NotOnSpark(
        f"source {source!r} is a streaming DataFrame of Spark Connect",
        why="Its rows would have to be handed to this process, tick by tick, and the server calls"
        " functions only in processes of its own.",
        fix="start the driver where the cluster is (headrace package), or read files that arrive in a folder",
        source=source,
    )


class _Stopped(Exception):
    """Exception that stops the query's thread between two ticks."""


@contextmanager
def record_phases(spark: SparkSession, query: StreamingQuery, metrics: RunMetrics | None) -> Generator[None]:
    """Record the batch phases of `query` inside this block, if metrics are enabled."""
    if metrics is None:
        yield
        return
    listener = _Phases(str(query.runId), metrics)
    spark.streams.addListener(listener)
    try:
        yield
    finally:
        spark.streams.removeListener(listener)


class _Phases(StreamingQueryListener):
    def __init__(self, run: str, metrics: RunMetrics) -> None:
        self._run = run
        self._metrics = metrics

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802 - Spark's name
        return

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        # A session may have queries of others.
        if str(event.progress.runId) == self._run:
            durations = event.progress.durationMs
            self._metrics.record_phases({phase: took / 1000 for phase, took in durations.items()})

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        return
