"""End of a tick in a task: changes written to staged files, not yet visible to readers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.atomic_files import subfolder_for
from headrace.expr.types import Rows
from headrace.io.files import changelog, table_files
from headrace.io.files.changelog import Changelog
from headrace.io.files.table_files import TableFiles
from headrace.io.outbox import DeliveredSink, StagedSink
from headrace.spark.placing.row_placement import ByBucket
from headrace.spark.ticks.messages import Result
from headrace.spark.ticks.plan import Output

_BUCKETS = 1 << 16
"""Number of buckets for targets without bucket files, enough for any number of shards."""


def takes_columns(target: object) -> bool:
    """Return whether `write_changes` accepts a target's changes as a table."""
    return isinstance(target, Changelog)


@singledispatch
def write_changes(
    target: object, output: Output, tick: int, attempt: str, rows: Any, durable: bool
) -> Iterator[Result]:
    """Stage a task's changes; yield the results to report to the driver. Default: the rows themselves."""
    yield Result("rows", (output.name, rows))


@write_changes.register
def _(
    target: Changelog, output: Output, tick: int, attempt: str, rows: Rows | pa.Table, durable: bool
) -> Iterator[Result]:
    name = f"{attempt}{target.ending}"
    staged = changelog.stage_part(
        target.path, tick, name, rows, output.schema, durable=durable, write=target.write
    )
    yield Result("file", (output.name, staged, len(rows)))


@write_changes.register
def _(
    target: TableFiles, output: Output, tick: int, attempt: str, rows: Rows, durable: bool
) -> Iterator[Result]:
    staged = table_files.stage(
        output.name, target, tick, attempt, rows, output.schema, durable=durable, sources=output.sources
    )
    for name, count in staged:
        yield Result("file", (output.name, name, count))


@write_changes.register
def _(
    target: StagedSink, output: Output, tick: int, attempt: str, rows: Rows, durable: bool
) -> Iterator[Result]:
    staged = target.stage(output.name, tick, f"{attempt}.parquet", rows, output.schema)
    yield Result("file", (output.name, staged, len(rows)))


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
