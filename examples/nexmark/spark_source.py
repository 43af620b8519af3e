"""Nexmark events as a source of Spark: generated in its tasks, the same again when a task is.

    events = nexmark_events(spark, 1_000_000)              # bounded: {"persons": DataFrame, ...}
    events = nexmark_events(spark, 1_000_000, ticks=100)   # a stream: 10,000 events in a micro-batch

A data source in Python (Spark 4.2 or newer for streams, which need admission control). An offset is
a number of events, so the streams of all three kinds advance together, and any part of them
can be read again by whoever needs it. Tasks import this package: on a cluster it must be there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

from examples.nexmark.events import SOURCES, Kind
from examples.nexmark.generator import Generator, Parameters

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.datasource import ReadLimit
    from pyspark.sql.types import StructType

BATCH = 50_000
"""Events that a task generates at a time."""

_MICROSECOND = timedelta(microseconds=1)


def nexmark_events(
    spark: SparkSession,
    count: int,
    *,
    ticks: int | None = None,
    partitions: int | None = None,
    parameters: Parameters = Parameters(),
) -> dict[Kind, DataFrame]:
    """The first `count` events, a DataFrame for each kind.

    ticks:      None: bounded. Else streams, which give the events in so many micro-batches.
    partitions: tasks that generate the events, of all or of a micro-batch; as many as Spark
                runs at a time, if not given.
    """
    spark.dataSource.register(NexmarkSource)
    given: dict[str, str] = {
        "count": str(count),
        "partitions": str(partitions or spark.sparkContext.defaultParallelism),
        **_as_options(parameters),
    }
    if ticks is not None:
        given["events_per_tick"] = str(-(-count // ticks))
    reader = spark.read if ticks is None else spark.readStream
    return {kind: reader.format("nexmark").options(kind=kind, **given).load() for kind in SOURCES}


@dataclass
class Events(InputPartition):
    """Events from one number to another (not included)."""

    start: int
    stop: int


class NexmarkSource(DataSource):
    """Format "nexmark": events of one kind; options as `nexmark_events` gives them."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._kind: Kind = cast("Kind", options["kind"])
        self._count = int(options["count"])
        self._partitions = int(options["partitions"])
        self._per_tick = int(options.get("events_per_tick", self._count))

    @classmethod
    def name(cls) -> str:
        return "nexmark"

    def schema(self) -> StructType:
        from pyspark.sql.pandas.types import from_arrow_schema

        return from_arrow_schema(Generator().table(self._kind, 0, 0).schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        return _Bounded(self._kind, self.options, self._count, self._partitions)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return _Stream(self._kind, self.options, self._count, self._partitions, self._per_tick)


class _Generating:
    """What both readers do in tasks."""

    def __init__(self, kind: Kind, options: Mapping[str, str], count: int, partitions: int) -> None:
        self._kind: Kind = kind
        self._parameters = _from_options(options)
        self._count = count
        self._partitions = partitions

    def _divided(self, start: int, stop: int) -> list[Events]:
        """Consecutive parts, in the order of their numbers."""
        cuts = [start + (stop - start) * part // self._partitions for part in range(self._partitions + 1)]
        parts = [Events(a, b) for a, b in pairwise(cuts) if a < b]
        return parts or [Events(start, start)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Events)
        generator = Generator(self._parameters)
        for start in range(partition.start, partition.stop, BATCH):
            table = generator.table(self._kind, start, min(start + BATCH, partition.stop))
            yield from table.to_batches()


class _Bounded(_Generating, DataSourceReader):
    def partitions(self) -> list[Events]:
        return self._divided(0, self._count)


class _Stream(_Generating, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self, kind: Kind, options: Mapping[str, str], count: int, partitions: int, per_tick: int
    ) -> None:
        super().__init__(kind, options, count, partitions)
        self._per_tick = per_tick

    def initialOffset(self) -> dict[str, int]:  # noqa: N802
        return {"events": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._per_tick)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        if isinstance(limit, ReadAllAvailable):
            return {"events": self._count}
        assert isinstance(limit, ReadMaxRows)
        return {"events": min(start["events"] + limit.max_rows, self._count)}

    def reportLatestOffset(self) -> dict[str, int]:  # noqa: N802
        return {"events": self._count}

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """All events are there from the start."""

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Events]:
        return self._divided(start["events"], end["events"])

    def commit(self, end: dict[str, int]) -> None:
        """Nothing is kept for events that were read."""


def _as_options(parameters: Parameters) -> dict[str, str]:
    options: dict[str, str] = {}
    for name in Parameters.__slots__:
        value = getattr(parameters, name)
        if isinstance(value, datetime):
            options[name] = value.isoformat()
        else:
            options[name] = str(value // _MICROSECOND if isinstance(value, timedelta) else value)
    return options


def _from_options(options: Mapping[str, str]) -> Parameters:
    given: dict[str, Any] = {}
    for name in Parameters.__slots__:
        default, text = getattr(Parameters(), name), options[name]
        if isinstance(default, datetime):
            given[name] = datetime.fromisoformat(text)
        else:
            given[name] = timedelta(microseconds=int(text)) if isinstance(default, timedelta) else int(text)
    return Parameters(**given)
