"""Input of a tick on the driver: locations for tasks to read, DataFrames, and ends of sources.

Locations travel with the tasks' code, divided among them by size. So a tick without DataFrames is one cheap
job over a frame that is made once, and nothing of it is planned or evaluated by Spark. How many rows a tick
has shows, as far as it can, before the job starts: files have sizes and Parquet files have row counts, given
rows are counted, records of Kafka have offsets, and Spark estimates the bytes of a DataFrame.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from heapq import heapify, heapreplace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.spark.session import is_remote
from headrace.spark.sources.arrivals import FoundInput, encoded_location
from headrace.spark.ticks.intake import ENDED, Tagged, tagged_batch

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

Located: TypeAlias = tuple[int, FoundInput, int]
"""A source's tag, a location with its input, and its place among those of the source."""

BYTES_OF_A_ROW = 64
"""Assumed size of a row until a tick has told the size of its rows."""

_UNKNOWN_BYTES = 1 << 62
"""From here on, a size is what Spark assumes of an unknown one."""


@dataclass(slots=True)
class Density:
    """Rows per byte of input without row counts, as observed in the ticks so far."""

    rows: float = 1 / BYTES_OF_A_ROW

    def learn(self, rows: int, size: int) -> None:
        # A few rows say little: a file has a header, a DataFrame may be estimated as whole files.
        if rows >= 1_000 and size > 0:
            self.rows = rows / size


@dataclass(frozen=True, slots=True)
class Expected:
    """Expected number of rows of a tick: a count for some input, the bytes of the rest."""

    counted: int = 0
    size: int = 0

    def rows(self, density: Density) -> int:
        return self.counted + int(self.size * density.rows)


@dataclass(frozen=True, slots=True)
class TickInput:
    """Input of a tick.

    ended: operators to notify that their sources have ended.
    frames: rows of DataFrames in the union's schema, with their number if it is known.
    batches: rows of a tick that runs in this process, in the form of the union.
    """

    located: Sequence[Located] = ()
    ended: Sequence[str] = ()
    frames: Sequence[tuple[DataFrame, int | None]] = ()
    batches: Sequence[pa.RecordBatch] = ()

    def __bool__(self) -> bool:
        return bool(self.located or self.ended or self.frames or self.batches)

    def __add__(self, other: TickInput) -> TickInput:
        return TickInput(
            [*self.located, *other.located],
            [*self.ended, *other.ended],
            [*self.frames, *other.frames],
            [*self.batches, *other.batches],
        )

    def expected(self, most: int) -> Expected | None:
        """Return the expected rows; None if unknown. Counting stops beyond `most` rows."""
        counted = size = 0
        for _, found, _ in self.located:
            # A file that cannot be read is named by the task that reads it.
            rows = None
            if counted <= most:
                with suppress(Exception):
                    rows = found.count()
            if rows is None:
                size += found.size
            else:
                counted += rows
        unknown = False
        for frame, rows in self.frames:
            estimated = 0 if rows is not None else _estimated_size(frame)
            unknown = unknown or estimated is None
            counted += rows or 0
            size += estimated or 0
        return None if unknown and counted <= most else Expected(counted, size)

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return all input as one frame. Requires at least one frame."""
        whole, *others = [frame for frame, _ in self.frames]
        for other in others:
            whole = whole.union(other)
        rows = self.tagged()
        return whole.unionByName(frame_of_tagged(spark, rows), allowMissingColumns=True) if rows else whole

    def tagged(self) -> list[Tagged]:
        """Return the rows of the tagged union that represent ends and locations."""
        ended: list[Tagged] = [(ENDED, operator, None) for operator in self.ended]
        return ended + [(tag, encoded_location(at.location), place) for tag, at, place in self.located]

    def shares(self, count: int) -> list[list[Tagged]]:
        """Distribute ends and locations over tasks: largest first, each to the least loaded task."""
        sizes = [0] * len(self.ended) + [found.size for _, found, _ in self.located]
        pieces = sorted(zip(sizes, self.tagged(), strict=True), key=lambda piece: -piece[0])
        shares: list[list[Tagged]] = [[] for _ in range(count)]
        heap = [(0, number) for number in range(count)]
        heapify(heap)
        for size, row in pieces:
            total, number = heap[0]
            shares[number].append(row)
            # One byte more, so that also small files are divided.
            heapreplace(heap, (total + size + 1, number))
        return shares


def frame_of_locations(spark: SparkSession, located: Iterable[Located]) -> DataFrame:
    """Return a frame of locations for tasks to read: tag, path, place."""
    return frame_of_tagged(spark, TickInput([*located]).tagged())


def frame_of_tagged(spark: SparkSession, rows: Sequence[Tagged]) -> DataFrame:
    import pyarrow

    # A list of rows would go through a Python job.
    return spark.createDataFrame(pyarrow.Table.from_batches([tagged_batch(rows)]))


def _estimated_size(frame: DataFrame) -> int | None:
    """Return Spark's estimate of a frame's bytes before it runs; None if there is none."""
    if is_remote(frame.sparkSession):
        return None
    java: Any = frame._jdf  # pyright: ignore[reportPrivateUsage]
    plan = java.queryExecution().analyzed()
    size = int(plan.stats().sizeInBytes())
    # Py4J makes a negative number of one that is too large.
    return size if 0 <= size < _UNKNOWN_BYTES else None


# --- offsets of a streaming query -----------------------------------------------------------------


_Offsets: TypeAlias = dict[tuple[str, str, str], int]
"""Offsets by source, topic and partition."""


def batch_rows(checkpoint: Path, batch: int) -> int | None:
    """Return the number of records in a batch; None unless its sources number them per partition, as Kafka.

    checkpoint: the query's folder, where Spark writes the offsets of a batch before it runs it.
    """
    try:
        ends = _offsets_of(checkpoint, batch)
        begins = _offsets_of(checkpoint, batch - 1) if batch else _first_offsets(checkpoint)
    except (OSError, ValueError, TypeError, AttributeError):
        return None
    return sum(max(0, end - begins.get(partition, 0)) for partition, end in ends.items())


def _offsets_of(checkpoint: Path, batch: int) -> _Offsets:
    """Read the end offsets of a batch: one line per source, as JSON after the source's name, if it has one.

    Raises `ValueError`, `TypeError` or `AttributeError` for offsets of another form.
    """
    text = (checkpoint / "offsets" / str(batch)).read_text(encoding="utf-8")
    found: _Offsets = {}
    for number, line in enumerate(text.splitlines()[2:]):
        found |= _partitions(line[: line.index("{")].rstrip(":") or str(number), line)
    return found


def _first_offsets(checkpoint: Path) -> _Offsets:
    """Read the start offsets of each source. Raises like `_offsets_of`."""
    found: _Offsets = {}
    for folder in (checkpoint / "sources").iterdir():
        found |= _partitions(folder.name, (folder / "0").read_text(encoding="utf-8"))
    return found


def _partitions(source: str, text: str) -> _Offsets:
    topics = json.loads(text[text.index("{") :])
    return {(source, topic, name): int(at) for topic, part in topics.items() for name, at in part.items()}
