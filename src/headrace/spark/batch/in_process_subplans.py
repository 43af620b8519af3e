"""Subplans of a batch as DataFrames: tasks run the in-process engine on distributed rows.

Rows arrive in the order of their ordinals if anything reads that order. When distributed by keys, a task's
rows are sorted by a hash of their keys; the task processes them in chunks of whole keys, each with a machine
of its own, so that only one chunk is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from headrace.expr.check import check
from headrace.expr.spark_columns import hashable
from headrace.expr.types import Rows
from headrace.spark.batch.distribution import Anywhere, ByKeys, Distribution, InOneTask, distribution_of
from headrace.spark.batch.operators import exact_column
from headrace.spark.batch.sources import ORDINAL, with_ordinals
from headrace.spark.batch.stream_union import BATCH, TaggedUnion, select_stream
from headrace.spark.batch.subplan_flow import (
    SubplanBorder,
    SubplanFlow,
    machine_for,
    program_of,
    run_until_idle,
    subplan_flow,
)
from headrace.spark.expressions import to_column
from headrace.spark.ticks.errors import told
from headrace.spark.ticks.plan import pickled

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

    from headrace.spark.batch.batch_plan import BatchPlan, Subplan
    from headrace.spark.ticks.errors import Task


_HASH = "headrace hash"


def run_subplan(
    plan: BatchPlan,
    subplan: Subplan,
    made: Mapping[int, DataFrame],
    frames: Mapping[str, DataFrame],
    share: Callable[[DataFrame], DataFrame],
) -> dict[int, DataFrame]:
    """Run a subplan and return the bags of its nodes that are read outside it.

    made:  the bags of nodes that the subplan reads. frames: of the sources, as they were given.
    share: applied to what the subplan answers where more than one of its nodes is read.
    """
    part, how = subplan_flow(plan, subplan), distribution_of(plan, subplan)
    entering, leaving = frame_layout(part.entries), frame_layout(part.exits)
    streams: list[DataFrame] = []
    for port, entry in enumerate(part.entries):
        rows = with_ordinals(plan.graph, entry.node, frames) if entry.ordered else made[entry.node]
        streams.append(entering.tag_rows(rows, port, _further(part, entry, how)))
    answer = _brought_together(streams, entering, part, how).mapInArrow(
        subplan_task(part, how), leaving.type()
    )
    if len(part.exits) > 1:
        answer = share(answer)
    return {border.node: select_stream(answer, port, border.schema) for port, border in enumerate(part.exits)}


def _further(part: SubplanFlow, entry: SubplanBorder, how: Distribution) -> dict[str, Column]:
    """Extra columns of a stream's rows: the hash of their keys, and their ordinals."""
    columns: dict[str, Column] = {}
    if isinstance(how, ByKeys):
        keys = ((check(key, entry.schema).type, key) for key in how.keys[entry.node])
        columns[_HASH] = f.xxhash64(*(hashable(type, to_column(key, entry.schema)) for type, key in keys))
    if part.ordered:
        columns |= {name: exact_column(name) if entry.ordered else _no_number() for name in ORDINAL}
    return columns


def _no_number() -> Column:
    return f.lit(None).cast("long")


def _brought_together(
    streams: list[DataFrame], entering: TaggedUnion, part: SubplanFlow, how: Distribution
) -> DataFrame:
    sorting = ORDINAL if part.ordered else ()
    if isinstance(how, InOneTask):
        # The task must run where no row comes, too: for what speaks in the first tick.
        session = streams[0].sparkSession if streams else SparkSession.active()
        one = session.range(1)
        streams = [*streams, entering.tag_rows(one, -1, dict.fromkeys(sorting, _no_number()))]
    whole, *others = streams
    for other in others:
        whole = whole.unionAll(other)
    if isinstance(how, Anywhere):
        return whole
    if isinstance(how, ByKeys):
        return whole.repartition(exact_column(_HASH)).sortWithinPartitions(
            *map(exact_column, (_HASH, *sorting))
        )
    whole = whole.repartition(1)
    return whole.sortWithinPartitions(*map(exact_column, sorting)) if sorting else whole


# --- tasks ----------------------------------------------------------------------------------


def frame_layout(borders: tuple[SubplanBorder, ...]) -> TaggedUnion:
    """Frame layout of the streams that enter or leave a subplan."""
    return TaggedUnion(tuple((border.schema, border.weighted) for border in borders))


def subplan_task(part: SubplanFlow, how: Distribution) -> Task:
    """Create the `mapInArrow` function that runs a subplan over a task's rows."""
    shipped = pickled((part, _CHUNKS[type(how)]))

    @told
    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import cloudpickle

        part, chunks = cloudpickle.loads(shipped)
        program = program_of(part.graph)
        leaving = frame_layout(part.exits)
        for inputs in chunks(batches, part.entries):
            answers = run_until_idle(machine_for(program), inputs | {name: [(None,)] for name in part.ended})
            for port, border in enumerate(part.exits):
                yield from leaving.to_batches(answers[border.name], port)

    return task


Chunks = Callable[[Iterable["pa.RecordBatch"], tuple[SubplanBorder, ...]], Iterator[dict[str, Rows]]]


def _each_batch(
    batches: Iterable[pa.RecordBatch], entries: tuple[SubplanBorder, ...]
) -> Iterator[dict[str, Rows]]:
    for batch in batches:
        yield _rows_of(batch, entries)


def _all_at_once(
    batches: Iterable[pa.RecordBatch], entries: tuple[SubplanBorder, ...]
) -> Iterator[dict[str, Rows]]:
    inputs: dict[str, Rows] = {border.name: [] for border in entries}
    for batch in batches:
        for name, rows in _rows_of(batch, entries).items():
            inputs[name] += rows
    yield inputs


def split_between_keys(
    batches: Iterable[pa.RecordBatch], entries: tuple[SubplanBorder, ...]
) -> Iterator[dict[str, Rows]]:
    """Split rows into chunks of at least `BATCH` that end where the key hash changes."""
    waiting: list[pa.RecordBatch] = []
    last: int | None = None
    for batch in batches:
        hashes = batch.column(_HASH).to_pylist()
        end = next((at for at in range(len(hashes) - 1, 0, -1) if hashes[at] != hashes[at - 1]), 0)
        if hashes and (end or hashes[0] != last) and sum(map(len, waiting)) + end >= BATCH:
            yield from _all_at_once([*waiting, batch.slice(0, end)], entries)
            waiting, batch = [], batch.slice(end)
        waiting.append(batch)
        last = hashes[-1] if hashes else last
    if waiting:
        yield from _all_at_once(waiting, entries)


_CHUNKS: dict[type[Distribution], Chunks] = {
    Anywhere: _each_batch,
    ByKeys: split_between_keys,
    InOneTask: _all_at_once,
}


def _rows_of(batch: pa.RecordBatch, entries: tuple[SubplanBorder, ...]) -> dict[str, Rows]:
    ports = frame_layout(entries)
    return {border.name: ports.rows(batch, port) for port, border in enumerate(entries)}
