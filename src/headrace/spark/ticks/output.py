"""Output of a tick in a task: changes written to staged files, not yet visible to readers.

`ChangeFiles` is the sink of all changes of an externally driven run, as files that any process can read;
`in_parts` runs jobs over such parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import pyarrow as pa

from headrace.expr.types import Rows
from headrace.expr.value_keys import with_representatives
from headrace.file_system import subfolder_for, sync_folder
from headrace.io.files import changelog, table_files
from headrace.io.files.changelog import Changelog
from headrace.io.files.table_files import TableFiles
from headrace.io.outbox import DeliveredSink, StagedSink
from headrace.io.sink import PartsWriter, SinkRequest, SinkTarget, Writer, open_sink
from headrace.io.source import Guarantee
from headrace.spark.placing.row_placement import ByBucket
from headrace.spark.ticks.failures import decoded_errors, with_encoded_errors
from headrace.spark.ticks.messages import TaskResult
from headrace.spark.ticks.plan import SinkOutput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_BUCKETS = 1 << 16
"""Number of buckets for targets without bucket files, enough for any number of shards."""


@singledispatch
def takes_columns(target: object) -> bool:
    """Return whether `write_changes` accepts a target's changes as a table."""
    return False


@takes_columns.register
def _(target: Changelog) -> bool:
    return True


@singledispatch
def write_changes(
    target: object, output: SinkOutput, tick: int, attempt: str, rows: Any, durable: bool
) -> Iterator[TaskResult]:
    """Stage a task's changes; yield the results to report to the driver. Default: the rows themselves."""
    yield TaskResult("rows", (output.name, rows))


@write_changes.register
def _(
    target: Changelog, output: SinkOutput, tick: int, attempt: str, rows: Rows | pa.Table, durable: bool
) -> Iterator[TaskResult]:
    name = f"{attempt}{target.ending}"
    staged = changelog.stage_part(
        target.path, tick, name, rows, output.schema, durable=durable, write=target.write
    )
    yield TaskResult("file", (output.name, staged, len(rows)))


@write_changes.register
def _(
    target: TableFiles, output: SinkOutput, tick: int, attempt: str, rows: Rows, durable: bool
) -> Iterator[TaskResult]:
    staged = table_files.stage(
        output.name, target, tick, attempt, rows, output.schema, durable=durable, sources=output.sources
    )
    for name, count in staged:
        yield TaskResult("file", (output.name, name, count))


@write_changes.register
def _(
    target: StagedSink, output: SinkOutput, tick: int, attempt: str, rows: Rows, durable: bool
) -> Iterator[TaskResult]:
    staged = target.stage(output.name, tick, f"{attempt}.parquet", rows, output.schema)
    yield TaskResult("file", (output.name, staged, len(rows)))


@singledispatch
def bucket_route(target: object) -> ByBucket | None:
    """Return the route required by a sink for its rows; None if any distribution will do."""
    return None


@bucket_route.register
def _(target: TableFiles) -> ByBucket:
    return ByBucket(target.key, target.buckets)


@bucket_route.register
def _(target: DeliveredSink) -> ByBucket | None:
    return None if target.key is None else ByBucket(target.key, _BUCKETS)


def outbox_of(folder: Path, sink: str) -> Path:
    """Return the folder of a sink's staged output in a checkpoint."""
    return subfolder_for(folder / "outbox", sink)


@singledispatch
def task_target(target: object, sink: str, folder: Path) -> object | None:
    """Return the data that tasks need to write a sink's changes; None for sinks written by the driver."""
    return None


@task_target.register
def _(target: Changelog | TableFiles, sink: str, folder: Path) -> object | None:
    return target


@task_target.register
def _(target: DeliveredSink, sink: str, folder: Path) -> object | None:
    # Not the sink itself, which may hold a password.
    return StagedSink(str(outbox_of(folder, sink)), target.key)


@dataclass(frozen=True)
class ChangeFiles(SinkTarget):
    """Sink of all changes of a timed run (`headrace.spark.external_ticks`), filed by key.

    key: positions of the columns by which rows are filed; empty for the whole row.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("exactly once", "the commit of a tick names its files")
    path: str
    key: tuple[int, ...]


@write_changes.register
def _(
    target: ChangeFiles, output: SinkOutput, tick: int, attempt: str, rows: list[Any], durable: bool
) -> Iterator[TaskResult]:
    # Not at the top, because it needs Arrow's Parquet, which workers of other runs do without.
    from headrace.tables.change_files import ChangeFile, consolidated_entries, write_entries

    folder = Path(target.path)
    name = write_entries(
        folder,
        tick,
        attempt,
        consolidated_entries(with_representatives(rows, output.schema), target.key),
        durable=durable,
    )
    if name:
        yield TaskResult("file", (output.name, name, ChangeFile(folder, name).count))


@task_target.register
def _(target: ChangeFiles, sink: str, folder: Path) -> object | None:
    return target


class _NamedByCommits(PartsWriter):
    """Driver side of `ChangeFiles`, which has nothing to do: commits name the files."""

    def __init__(self, folder: Path, durable: bool) -> None:
        self._folder = folder
        self._durable = durable

    def recover(self, tick: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)

    def prepare(self, tick: int, rows: list[tuple[Any, ...]]) -> None:
        assert not rows, "tasks write the changes"

    def assemble(self, tick: int, names: Iterable[str]) -> None:
        if self._durable:
            sync_folder(self._folder)

    def publish(self, tick: int) -> None:
        return


@open_sink.register
def _(sink: ChangeFiles, request: SinkRequest) -> Writer:
    return _NamedByCommits(Path(sink.path), request.durable)


PartTask: TypeAlias = Callable[[int], Iterator[bytes]]
"""Function that computes a part from its number. It is sent to tasks and so must be picklable."""


def in_parts(spark: SparkSession, parts: int, make: PartTask, group: str) -> list[bytes]:
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
    with decoded_errors():
        found = spark.range(0, parts, 1, parts).mapInArrow(with_encoded_errors(task), "made binary").toArrow()
    return found.column("made").to_pylist()
