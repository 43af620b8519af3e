"""A scan of a large index by Spark: tasks share the hashes, and send what the peek wants of their part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.compute.collections.rows import HASH_BITS
from penstock.compute.plans import predicate_of
from penstock.compute.protocol.commands import Finishing, Parameters, Peek
from penstock.compute.protocol.responses import Counted
from penstock.compute.replica.finishing import finish_of
from penstock.compute.replica.peek_run import check_size, checked
from penstock.compute.replica.sizes import rows_size
from penstock.compute.replica.spark_files import ChangeFile
from penstock.compute.replica.spark_versions import Versions, summed
from penstock.expr.types import Schema
from penstock.spark.local.reach import tasks_at_a_time
from penstock.spark.ticks.errors import told, told_errors
from penstock.state.codec import decode, value_encoder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

_PARTS_OF_A_TASK = 8
"""A task reads its hashes in so many parts, so that it has few rows in memory at a time."""


def scan(
    spark: SparkSession, versions: Versions, peek: Peek, schema: Schema, settings: Parameters, group: str
) -> Iterator[Iterable[Counted]]:
    """The rows at the time of the peek that pass its predicate, each part as a task sends it; where it has a
    limit, at least those that can be within it. They are as many in all as `settings` allow.

    group: of the job, by which it can be cancelled. Raises what `PeekRun` raises.
    """
    tasks = tasks_at_a_time(spark)
    with versions.reading() as paths, told_errors():
        reading = told(_Reading(tuple(paths), peek, schema, settings, tasks))
        context = spark.sparkContext
        context.setJobGroup(group, "a peek of Penstock", interruptOnCancel=True)
        try:
            found = spark.range(0, tasks, 1, tasks).mapInArrow(reading, "rows binary").toArrow()
        finally:
            context.setLocalProperty("spark.jobGroup.id", None)
    for body in found.column("rows").to_pylist():
        yield decode(body)


class _Reading:
    """What a task does. Its number says which hashes are its own."""

    __name__ = "penstock_peek"

    def __init__(
        self, paths: tuple[str, ...], peek: Peek, schema: Schema, settings: Parameters, tasks: int
    ) -> None:
        self._paths = paths
        self._peek = peek
        self._schema = schema
        self._settings = settings
        self._tasks = tasks

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        encode = value_encoder()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                for part in self._rows(number):
                    yield pa.RecordBatch.from_pydict({"rows": pa.array([encode(part)], pa.binary())})

    def _rows(self, number: int) -> Iterator[list[Counted]]:
        peek = self._peek
        files = [ChangeFile(Path(path).parent, Path(path).name) for path in self._paths]
        predicate = None if peek.predicate is None else predicate_of(peek.predicate, self._schema)
        finish = finish_of(_within_a_part(peek.finishing), self._schema)
        for low, high in self._ranges(number):
            if not finish.take(checked(peek, predicate, summed(files, low, high, peek.time))):
                break
        size = 0
        for part in finish.rows():
            size += rows_size(part)
            if peek.finishing.project is None:
                check_size(size, self._settings)
            yield part

    def _ranges(self, number: int) -> Iterator[tuple[int, int]]:
        parts = self._tasks * _PARTS_OF_A_TASK
        hashes = 1 << HASH_BITS
        for part in range(number * _PARTS_OF_A_TASK, (number + 1) * _PARTS_OF_A_TASK):
            yield part * hashes // parts, (part + 1) * hashes // parts - 1


def _within_a_part(finishing: Finishing) -> Finishing:
    """What a part must send so that the whole can be finished."""
    if finishing.limit is None:
        return Finishing()
    return replace(finishing, limit=finishing.limit + finishing.offset, offset=0, project=None)
