"""Sink of all changes of a timed run, as change files that any process can read; jobs over parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headrace.expr.value_keys import with_representatives
from headrace.file_system import sync_folder
from headrace.io.sink import PartsWriter, SinkRequest, SinkTarget, Writer, open_sink
from headrace.io.source import Guarantee
from headrace.spark.ticks.errors import told, told_errors
from headrace.spark.ticks.messages import Result
from headrace.spark.ticks.plan import Output
from headrace.spark.ticks.task_output import task_target, write_changes
from headrace.tables.change_files import ChangeFile, consolidated_entries, write_entries

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class ChangeFiles(SinkTarget):
    """All changes of a timed run (`headrace.spark.external_ticks`), filed by key.

    key: positions of the columns by which rows are filed; empty for the whole row.
    """

    guarantee: ClassVar[Guarantee] = Guarantee("exactly once", "the commit of a tick names its files")
    path: str
    key: tuple[int, ...]


@write_changes.register
def _(
    target: ChangeFiles, output: Output, tick: int, attempt: str, rows: list[Any], durable: bool
) -> Iterator[Result]:
    folder = Path(target.path)
    name = write_entries(
        folder,
        tick,
        attempt,
        consolidated_entries(with_representatives(rows, output.schema), target.key),
        durable=durable,
    )
    if name:
        yield Result("file", (output.name, name, ChangeFile(folder, name).count))


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
    with told_errors():
        found = spark.range(0, parts, 1, parts).mapInArrow(told(task), "made binary").toArrow()
    return found.column("made").to_pylist()
