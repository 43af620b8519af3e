"""The end of a tick in a task: changes written to files that nobody reads yet."""

from __future__ import annotations

from collections.abc import Iterator
from functools import singledispatch
from typing import Any, TypeAlias

from penstock.io import changelog, table_files
from penstock.io.bucketing import bucketing
from penstock.io.changelog import Changelog
from penstock.io.table_files import TableFiles
from penstock.spark.messages import Result
from penstock.spark.placement import ByBucket
from penstock.spark.plan import Output

Rows: TypeAlias = list[tuple[Any, ...]]


@singledispatch
def write_changes(
    target: object, output: Output, tick: int, attempt: str, rows: Rows, durable: bool
) -> Iterator[Result]:
    """Put the changes of a task away; what to tell the driver. Default: the rows themselves."""
    yield Result("rows", (output.name, rows))


@write_changes.register
def _(
    target: Changelog, output: Output, tick: int, attempt: str, rows: Rows, durable: bool
) -> Iterator[Result]:
    name = f"{attempt}.parquet"
    staged = changelog.stage_part(target.path, tick, name, rows, output.schema, durable=durable)
    yield Result("file", (output.name, staged, len(rows)))


@write_changes.register
def _(
    target: TableFiles, output: Output, tick: int, attempt: str, rows: Rows, durable: bool
) -> Iterator[Result]:
    by = bucketing(output.name, output.schema, target.key, target.buckets)
    buckets: dict[int, Rows] = {}
    for row in rows:
        buckets.setdefault(by.bucket(row), []).append(row)
    for bucket, changes in sorted(buckets.items()):
        staged = table_files.stage_bucket(
            output.name, target, tick, bucket, attempt, changes, output.schema, durable=durable
        )
        yield Result("file", (output.name, staged, len(changes)))


@singledispatch
def bucket_route(target: object) -> ByBucket | None:
    """How the rows of a sink must be divided among tasks, where the sink demands it."""
    return None


@bucket_route.register
def _(target: TableFiles) -> ByBucket:
    return ByBucket(target.key, target.buckets)


def is_written_by_tasks(target: object) -> bool:
    return isinstance(target, Changelog | TableFiles)
