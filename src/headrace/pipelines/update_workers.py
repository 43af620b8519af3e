"""Threads in which Spark brings independent tables up to date side by side, and its retries.

The settings are those of `spark-pipelines`, with its defaults, except that as many tables are refreshed at a
time as Spark has cores. Only transient errors are retried: wrong queries, wrong values and a full disk are
not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event as Flag
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from uuid import uuid4

from headrace.pipelines.definitions import TableName
from headrace.pipelines.errors import PipelineError, QueryRefused
from headrace.spark.session import renew_connection

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CONCURRENT = "spark.sql.pipelines.execution.maxConcurrentFlows"
_RETRIES = "spark.sql.pipelines.maxFlowRetryAttempts"
_FIRST_WAIT = "spark.sql.pipelines.execution.watchdog.minRetryTime"
_LONGEST_WAIT = "spark.sql.pipelines.execution.watchdog.maxRetryTime"
_END = "spark.sql.pipelines.timeoutMsForTerminationJoinAndLock"

_LOOK_EVERY = 0.5
"""Seconds between two attempts to end what still runs."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Retries:
    """Number of retries, and the seconds before the first and at most before each; they double."""

    count: int = 2
    first: float = 5.0
    longest: float = 3600.0

    @classmethod
    def of(cls, spark: SparkSession) -> Retries:
        """Read the retry settings of a session."""
        first, longest = (_seconds(spark, name, "SECONDS") for name in (_FIRST_WAIT, _LONGEST_WAIT))
        return cls(int(spark.conf.get(_RETRIES) or 0), first, longest)

    def wait_before(self, retry: int) -> float:
        """Return the seconds to wait before a retry, counted from 1."""
        return min(self.first * 2 ** (retry - 1), self.longest)


def _seconds(spark: SparkSession, name: str, unit: str) -> float:
    """Return a setting in seconds. unit: of a number without one, by its name in Java."""
    from headrace.queries.plan_details import java_class

    units = java_class(spark, "java.util.concurrent.TimeUnit")
    given: Any = units.valueOf(unit)
    parsed = java_class(spark, "org.apache.spark.network.util.JavaUtils").timeStringAs(
        str(spark.conf.get(name)), given
    )
    return float(given.toMillis(parsed)) / 1000.0


def is_transient(error: Exception) -> bool:
    """Return whether the same update may succeed later: a source, or an executor, was away."""
    if isinstance(error, PipelineError):
        return isinstance(error, QueryRefused) and error.unreachable
    from headrace.pipelines.query_errors import source_message

    return source_message(error)[1] or "ExecutorLostFailure" in str(error)


class _Ended(Exception):
    """Raised by an update whose run has ended before it began."""


@dataclass(slots=True)
class UpdateWorkers(Generic[T]):
    """Threads that update tables by a session. Leaving the block with an error ends their jobs.

    size: number of updates at a time.
    """

    spark: SparkSession
    size: int
    retries: Retries
    _running: dict[Future[T], TableName] = field(default_factory=dict[Future[T], TableName], init=False)
    _pool: ThreadPoolExecutor | None = field(default=None, init=False)
    _ending: Flag = field(default_factory=Flag, init=False)
    _tag: str = field(default_factory=lambda: f"headrace-{uuid4()}", init=False)

    @classmethod
    def of(cls, spark: SparkSession, configuration: Mapping[str, str]) -> UpdateWorkers[T]:
        """Return the workers of a session. configuration: of a spec, which may say how many there are."""
        given = configuration.get(CONCURRENT)
        size = spark.sparkContext.defaultParallelism if given is None else max(1, int(given))
        return cls(spark, size, Retries.of(spark))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is None:
            return
        self._ending.set()
        if error is not None and not isinstance(error, Exception):
            renew_connection()
        if self._running:
            self._end()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _end(self) -> None:
        """Cancel all jobs until no update is running, each of which may begin further ones."""
        until = monotonic()
        with suppress(Exception):  # The JVM may be gone.
            until += _seconds(self.spark, _END, "MILLISECONDS")
        while True:
            with suppress(Exception):
                self.spark.sparkContext.cancelJobsWithTag(self._tag)
            if not wait(self._running, timeout=_LOOK_EVERY).not_done or monotonic() >= until:
                return

    @property
    def has_room(self) -> bool:
        """Whether one more update can begin."""
        return len(self._running) < self.size

    @property
    def running(self) -> Collection[TableName]:
        """Tables that are being updated."""
        return self._running.values()

    def start(self, table: TableName, update: Callable[[], T], on_retry: Callable[[Exception], None]) -> None:
        """Begin the update of a table in a thread of its own."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.size, thread_name_prefix="headrace-update")
        self._running[self._pool.submit(self._in_thread, update, on_retry)] = table

    def _in_thread(self, update: Callable[[], T], on_retry: Callable[[Exception], None]) -> T:
        from headrace.queries.planning import activate

        activate(self.spark)
        self.spark.sparkContext.addJobTag(self._tag)
        if self._ending.is_set():
            raise _Ended
        return self.retried(update, on_retry)

    def finished(self) -> tuple[TableName, Future[T]]:
        """Wait for a table to be updated, and return it with the outcome."""
        done, _ = wait(self._running, return_when=FIRST_COMPLETED)
        future = next(each for each in self._running if each in done)
        return self._running.pop(future), future

    def retried(self, update: Callable[[], T], on_retry: Callable[[Exception], None]) -> T:
        """Update a table, again where that may help. on_retry: called before each further attempt."""
        for retry in range(1, self.retries.count + 1):
            try:
                return update()
            except Exception as error:
                if not is_transient(error) or self._ending.is_set():
                    raise
                on_retry(error)
                if self._ending.wait(self.retries.wait_before(retry)):
                    raise
        return update()
