"""A scan of a large index by Spark: tasks share the hashes, and send what the peek wants of their part."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.compute.plans import predicate_of
from penstock.compute.protocol.commands import Finishing, Parameters, Peek
from penstock.compute.protocol.responses import Counted
from penstock.compute.replica.finishing import finish_of
from penstock.compute.replica.peek_run import check_size, shown
from penstock.compute.replica.sizes import rows_size
from penstock.compute.replica.spark_versions import Versions, summed
from penstock.expr.types import Schema
from penstock.spark.local.session_info import tasks_at_a_time
from penstock.spark.versions.files import LAST_HASH, ChangeFile
from penstock.spark.versions.partitioned_job import in_parts
from penstock.state.codec import decode, value_encoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RANGES = 8
"""A task reads its hashes in so many ranges, so that it has few rows in memory at a time."""


def scan(
    spark: SparkSession, versions: Versions, peek: Peek, schema: Schema, settings: Parameters, group: str
) -> Iterator[Iterable[Counted]]:
    """The rows at the time of the peek that pass its predicate, in parts as tasks send them; where it has a
    limit, at least those that can be within it. No task sends more bytes than `settings` allow.

    group: of the job, by which it can be cancelled. Raises what `PeekRun` raises.
    """
    tasks = tasks_at_a_time(spark)
    with versions.reading() as paths:
        made = in_parts(spark, tasks, _Part(tuple(paths), peek, schema, settings, tasks), group)
    for part in made:
        yield decode(part)


@dataclass(frozen=True, slots=True)
class _Part:
    """What tasks do: each has its own of all hashes."""

    paths: tuple[str, ...]
    peek: Peek
    schema: Schema
    settings: Parameters
    tasks: int

    def __call__(self, number: int) -> Iterator[bytes]:
        encode = value_encoder()
        for rows in self._rows(number):
            yield encode(rows)

    def _rows(self, number: int) -> Iterator[list[Counted]]:
        peek = self.peek
        files = [ChangeFile(Path(path).parent, Path(path).name) for path in self.paths]
        predicate = None if peek.predicate is None else predicate_of(peek.predicate, self.schema)
        finish = finish_of(_within_a_part(peek.finishing), self.schema)
        for low, high in self._ranges(number):
            if not finish.take(shown(predicate, summed(files, low, high, peek.time))):
                break
        size = 0
        for rows in finish.rows():
            if peek.finishing.project is None:
                size += rows_size(rows)
                check_size(size, self.settings)
            yield rows

    def _ranges(self, number: int) -> Iterator[tuple[int, int]]:
        ranges, hashes = self.tasks * _RANGES, LAST_HASH + 1
        for at in range(number * _RANGES, (number + 1) * _RANGES):
            yield at * hashes // ranges, (at + 1) * hashes // ranges - 1


def _within_a_part(finishing: Finishing) -> Finishing:
    """What a part must send so that the whole can be finished."""
    if finishing.limit is None:
        return Finishing()
    return replace(finishing, limit=finishing.limit + finishing.offset, offset=0, project=None)
