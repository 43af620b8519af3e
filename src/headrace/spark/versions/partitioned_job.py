"""Jobs of numbered parts distributed over tasks, with results as bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeAlias

from headrace.spark.ticks.errors import told, told_errors

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Part: TypeAlias = Callable[[int], Iterator[bytes]]
"""Function that computes a part from its number. It is sent to tasks and so must be picklable."""


def in_parts(spark: SparkSession, parts: int, make: Part, group: str) -> list[bytes]:
    """Run tasks for parts 0 to `parts` - 1 and return their results in any order.

    group: of the job: `spark.sparkContext.cancelJobGroup(group)` ends it. Raises the errors of ours that a
    task raises, and what Spark raises.
    """

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for number in batch.column(0).to_pylist():
                for made in make(number):
                    yield pa.RecordBatch.from_pydict({"made": pa.array([made], pa.binary())})

    context = spark.sparkContext
    context.setJobGroup(group, "Headrace: work in parts", interruptOnCancel=True)
    with told_errors():
        found = spark.range(0, parts, 1, parts).mapInArrow(told(task), "made binary").toArrow()
    return found.column("made").to_pylist()
