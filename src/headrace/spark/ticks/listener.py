"""Forwarding of Spark's batch phase durations (planning, logging, execution) to metrics."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from pyspark.sql.streaming.query import StreamingQuery

    from headrace.engine.prometheus import RunMetrics


@contextmanager
def listening(spark: SparkSession, query: StreamingQuery, metrics: RunMetrics | None) -> Generator[None]:
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
