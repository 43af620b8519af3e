"""`headrace.pull` sources on Spark: the declaration, and the reader behind Python's data source API.

Spark opens the source in a separate process beside the driver and asks it for the rows of each micro-batch.
A position is the number of rows taken. After a restart, the source is opened again and that many rows are
skipped. So it must produce the same rows again for each to count exactly once. Rows keep their order.
"""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from queue import Empty, Queue
from typing import TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import DataSource, DataSourceReader, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from typing_extensions import override

from headrace import pull
from headrace.errors import BadInput, HeadraceError, UserFunctionFailed
from headrace.expr.types import Schema
from headrace.io.source import WEIGHT, Guarantee, Source, refuse_untyped
from headrace.spark.sources.opening import Opening, sends_rows, source_frame
from headrace.spark.ticks.failures import failing_as_told

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


ROWS_PER_TICK = 10_000


@dataclass(frozen=True, eq=False)
class Pulled(Source):
    """A source of `headrace.pull` whose values are rows. A bare pull source is wrapped in `Pulled`.

    rows_per_tick: limit on the rows of a tick.

    It is sent to another process, so it must be made of what can be pickled: functions and lambdas can,
    open files, sockets and iterators cannot. Make those within a function that the source calls.
    """

    guarantee: ClassVar[Guarantee] = Guarantee(
        "exactly once", "where the source brings the same rows again after a restart: those taken are skipped"
    )
    source: pull.PullSource
    rows_per_tick: int = ROWS_PER_TICK


@sends_rows.register(Pulled)
@sends_rows.register(pull.PullSource)
def _(source: Any) -> bool:
    return True


@source_frame.register(pull.PullSource)
def _(source: pull.PullSource, opening: Opening, schema: Schema) -> DataFrame:
    return source_frame(Pulled(source), opening, schema)


@source_frame.register(Pulled)
def _(source: Pulled, opening: Opening, schema: Schema) -> DataFrame:

    refuse_untyped(schema, f"source {opening.name!r}, which is sent to Spark,")
    name = f"headrace_pull_{opening.name.encode().hex()}"
    shipped = _pickled(
        opening.name,
        (opening.name, source, opening.engine.intake_of(opening.name), schema, opening.append),
    )
    opening.session.dataSource.register(type(name, (PullDataSource,), {"shipped": shipped, "called": name}))
    reader = opening.session.read if opening.operator.bounded else opening.reader()
    return reader.format(name).load()


def _pickled(name: str, shipped: Any) -> bytes:
    from pyspark import cloudpickle

    try:
        return cloudpickle.dumps(shipped)
    except Exception as error:
        raise BadInput(
            f"source {name!r} cannot be sent to Spark",
            why=f"{type(error).__name__}: {error}",
            fix="make what cannot be pickled (files, sockets, iterators) within a function of the source,\n"
            "or give the rows: Rows(...), an iterable",
            source=name,
        ) from error


# --- the reader -----------------------------------------------------------------------------------


_ROWS = "rows"
_ASKED = 1000
"""Number of rows requested from the source at once."""


class PullDataSource(DataSource):
    """A source of one run; each gets its own class, since Spark identifies data sources by class."""

    shipped: ClassVar[bytes]
    called: ClassVar[str]

    @classmethod
    def name(cls) -> str:
        return cls.called

    def schema(self) -> Any:
        from pyspark.sql.types import LongType, StructField, StructType

        from headrace.expr.spark_columns import spark_schema

        of = ReaderConfiguration.of(self.shipped)
        fields = [] if of.append else [StructField(WEIGHT, LongType(), False)]
        return StructType([*spark_schema(of.schema).fields, *fields])

    @override
    def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
        return PullReader(self.shipped)

    def reader(self, schema: Any) -> DataSourceReader:
        return WholeReader(self.shipped)


@dataclass(frozen=True, slots=True)
class ReaderConfiguration:
    """Configuration sent to the process that reads the source."""

    name: str
    source: Pulled
    intake: Callable[[list[Any]], list[tuple[Any, ...]]]
    schema: Schema
    append: bool

    @classmethod
    def of(cls, shipped: bytes) -> ReaderConfiguration:
        return cls(*pickle.loads(shipped))

    @contextmanager
    def failing(self) -> Iterator[None]:
        """Convert exceptions of the source to Headrace errors that reach the driver."""
        with failing_as_told():
            try:
                yield
            except HeadraceError:
                raise
            except Exception as error:
                raise UserFunctionFailed(
                    f"source {self.name!r} failed", why=f"{type(error).__name__}: {error}", source=self.name
                ) from error

    def values(self) -> Generator[Any]:
        return pull.iter_values(self.source.source, batch=min(_ASKED, self.source.rows_per_tick))

    def batches(self, rows: list[Any]) -> Iterator[pa.RecordBatch]:
        """Convert user rows to Arrow batches for Spark. Raises `BadRow`."""
        from headrace.io.arrow import rows_to_table

        table = rows_to_table(self.intake(rows), self.schema, weighted=not self.append)
        return iter(table.to_batches())


class WholeReader(DataSourceReader):
    """Reader of all rows in one task."""

    def __init__(self, shipped: bytes) -> None:
        self._shipped = shipped

    def read(self, partition: Any) -> Any:
        of = ReaderConfiguration.of(self._shipped)
        with of.failing(), closing(of.values()) as values:
            while rows := list(islice(values, of.source.rows_per_tick)):
                yield from of.batches(rows)


class PullReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a source in micro-batches. A thread prefetches the values of one or two ticks."""

    def __init__(self, shipped: bytes) -> None:
        self._of = ReaderConfiguration.of(shipped)
        self._ahead: Prefetch | None = None
        self._request = False

    @override
    def prepareForTriggerAvailableNow(self) -> None:
        # An empty micro-batch would end the run, and a source says itself when it ends.
        self._request = True

    @override
    def initialOffset(self) -> dict[str, int]:
        return {_ROWS: 0}

    def read(self, start: dict[str, int]) -> Any:
        with self._of.failing():
            if self._ahead is None or self._ahead.taken != start[_ROWS]:
                self.stop()
                self._ahead = Prefetch(self._of, start[_ROWS])
            rows = self._ahead.take(self._of.source.rows_per_tick, some=self._request)
            return self._of.batches(rows) if rows else iter(()), {_ROWS: start[_ROWS] + len(rows)}

    @override
    def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Any:
        with self._of.failing(), closing(self._of.values()) as values:
            rows = list(islice(values, start[_ROWS], end[_ROWS]))
            if len(rows) < end[_ROWS] - start[_ROWS]:
                raise BadInput(
                    f"source {self._of.name!r} ended after {start[_ROWS] + len(rows)} rows",
                    why=f"{end[_ROWS]} rows were taken of it before, and are needed again after a restart.",
                    fix="give a source that brings the same rows again, or begin with an empty checkpoint",
                )
            return self._of.batches(rows)

    def stop(self) -> None:
        if self._ahead is not None:
            self._ahead.stop()
            self._ahead = None


class Prefetch:
    """Prefetch of a source's values after the first `taken`, in a thread with a bounded queue."""

    def __init__(self, of: ReaderConfiguration, taken: int) -> None:
        self.taken = taken
        self._stopped = False
        self._ended = False
        self._queue: Queue[Any] = Queue(2 * of.source.rows_per_tick)
        self._thread = threading.Thread(target=self._run, args=(of.values(), taken), daemon=True)
        self._thread.start()

    def _run(self, source: Generator[Any], skip: int) -> None:
        try:
            with closing(source) as values:
                for value in islice(values, skip, None):
                    self._queue.put(value)
                    if self._stopped:
                        return
            self._queue.put(_END)
        except BaseException as error:
            self._queue.put(_Failure(error))

    def take(self, most: int, *, some: bool) -> list[Any]:
        """Take up to `most` buffered rows; with `some`, wait for at least one or the end."""
        rows: list[Any] = []
        while len(rows) < most and not self._ended:
            try:
                value = self._queue.get(some, _SHORT if rows else None)
            except Empty:
                break
            if isinstance(value, _Failure):
                raise value.error
            if value is _END:
                self._ended = True
            else:
                rows.append(value)
        self.taken += len(rows)
        return rows

    def stop(self) -> None:
        """Close the source, unless it is blocked: then it ends with the process."""
        self._stopped = True
        with suppress(Empty):
            while self._thread.is_alive():
                self._queue.get(timeout=_SHORT)


@dataclass(frozen=True, slots=True)
class _Failure:
    error: BaseException


_END = object()
_SHORT = 0.1
"""Seconds to wait for one more row before a tick runs without it."""
