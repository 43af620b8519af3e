"""Peeks on Spark: threads read an index's files, or have Spark read them if they are large.

A peek by keys, or at a small index, is read here. A scan of a large index is a Spark job in its own job
group, so that it can be cancelled; each task scans a share of the hashes, and sends the matching rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.compute.errors import RuntimeLost
from headrace.compute.plans import predicate_of
from headrace.compute.protocol.commands import Finishing, Parameters, Peek
from headrace.compute.protocol.responses import Counted, Rows, Stashed
from headrace.compute.protocol.row_batch import rows_size
from headrace.compute.replica.building import RuntimeContext, check_keys, check_since
from headrace.compute.replica.feeds import Feeds
from headrace.compute.replica.peek_finishing import peek_finisher
from headrace.compute.replica.peeks import (
    AcceptedPeek,
    PeekStash,
    PendingPeeks,
    check_not_failed,
    check_size,
    collection_parts,
    filter_rows,
)
from headrace.compute.replica.spark.dataflow import SparkIndex
from headrace.compute.replica.spark.threads import SparkThreads, Stores
from headrace.compute.replica.spark.versions import Versions
from headrace.errors import HeadraceError
from headrace.expr.types import DataType, FloatingType, Schema
from headrace.spark.session import tasks_at_a_time
from headrace.spark.ticks.output import in_parts
from headrace.state.codec import decode, value_encoder
from headrace.tables.change_files import LAST_HASH, ChangeFile, sum_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_CHANGES = 100_000
"""Number of changes up to which an index is read here, faster than Spark could start a job."""
_PART = 4096
_RANGES = 8
"""Number of hash ranges that a task reads one after another, to hold few rows in memory."""


@dataclass(slots=True, eq=False)
class _Pending(AcceptedPeek):
    """Pending peek. index: None for a collection. A thread executes the peek unless it is `waiting`."""

    index: SparkIndex | None = None

    @property
    def group(self) -> str:
        """Job group of the peek on Spark."""
        return f"peek {self.peek.uuid.hex()}"


class SparkPeeks(PendingPeeks[SparkIndex, _Pending]):
    """Peeks at indexes in files, and at collections."""

    def __init__(
        self,
        around: RuntimeContext[SparkIndex],
        stash: PeekStash,
        threads: SparkThreads,
        spark: Callable[[], SparkSession],
    ) -> None:
        super().__init__(around, stash)
        self._threads = threads
        self._spark = spark

    def _ask_index(self, peek: Peek, index: SparkIndex) -> None:
        self._put_off(_Pending(peek, index.hold(peek.time), index=index))

    def _ask_collection(self, peek: Peek) -> None:
        # A thread checks it, when it looks how far the collection is.
        self._put_off(_Pending(peek, None))

    def _put_off(self, pending: _Pending) -> None:
        with self._lock:
            self._pending[pending.peek.uuid] = pending
        self._begin(pending)

    def wake(self) -> None:
        """Start the peeks whose time is now settled."""
        with self._lock:
            waiting = [pending for pending in self._pending.values() if pending.waiting]
        for pending in waiting:
            self._begin(pending)

    # -- at work --------------------------------------------------------------------------------

    def _begin(self, pending: _Pending) -> None:
        with self._lock:
            if not pending.waiting or not self._is_settled(pending):
                return
            pending.waiting = False
        self._threads.run_job(partial(self._answer, pending))

    def _is_settled(self, pending: _Pending) -> bool:
        """Return whether work can start; for a collection, only a thread can tell."""
        index, time = pending.index, pending.peek.time
        if index is None:
            return True
        return index.upper.has_passed(time) or (index.failed is not None and time >= index.failed.time)

    def _answer(self, pending: _Pending, stores: Stores) -> None:
        if pending.over:
            return
        try:
            answer = self._read(pending, stores)
        except (HeadraceError, MemoryError) as error:
            answer = error
        except Exception as error:
            if pending.over:
                return  # the end of its job is what was wanted
            answer = _unread(error)
        if answer is None:
            with self._lock:
                pending.waiting = True
        else:
            self._end(pending, answer)

    def _read(self, pending: _Pending, stores: Stores) -> Rows | Stashed | None:
        """Compute the answer; None if the time is not settled or the peek was cancelled."""
        peek, index = pending.peek, pending.index
        if index is None:
            feed = Feeds(stores()).feed(peek.target.id)
            check_since(peek.target.id, peek.time, feed.since)
            schema = feed.schema
            check_keys(peek, len(schema.fields))
            if not feed.upper.has_passed(peek.time):
                return None
            parts: Iterator[Iterable[Counted]] = collection_parts(feed.store, peek)
        else:
            check_not_failed(index.failed, peek.time)
            schema, parts = index.schema, self._parts(pending, index)
        run = self._run(peek, schema, parts)
        for _ in run.slices():
            if pending.over:
                run.cancel()
                return None
        return run.answer

    def _parts(self, pending: _Pending, index: SparkIndex) -> Iterator[Iterable[Counted]]:
        peek, versions = pending.peek, index.versions
        if peek.keys is not None and index.key == versions.key:
            types = [index.schema.fields[at].type for at in index.key] or [
                f.type for f in index.schema.fields
            ]
            for values in dict.fromkeys(peek.keys):
                filed = tuple(map(_as_filed, values, types))
                yield versions.rows_at(filed, peek.time)
        elif peek.keys is None and versions.change_count > FEW_CHANGES:
            settings = self._around.settings()
            yield from scan(self._spark(), versions, peek, index.schema, settings, pending.group)
        else:
            keying = index.keying
            wanted = None if peek.keys is None else set(map(keying.of_values, peek.keys))
            rows = versions.scan(peek.time)
            for at in range(0, len(rows), _PART):
                part = rows[at : at + _PART]
                yield part if wanted is None else [r for r in part if keying.of_row(r[0]) in wanted]

    def _stop(self, pending: _Pending) -> None:
        index = pending.index
        if not pending.waiting and index is not None and index.versions.change_count > FEW_CHANGES:
            self._spark().sparkContext.cancelJobGroup(pending.group)


def _unread(error: Exception) -> RuntimeLost:
    first = str(error).strip().partition("\n")[0]
    return RuntimeLost(
        "Spark could not read the index", why=f"{type(error).__name__}: {first}", fix="send the peek again"
    )


def _as_filed(value: Any, type: DataType) -> Any:
    """Convert a key value to its column's type: 1 becomes 1.0 in a float column, as in-process."""
    return float(value) if isinstance(type, FloatingType) and isinstance(value, int) else value


def scan(
    spark: SparkSession, versions: Versions, peek: Peek, schema: Schema, settings: Parameters, group: str
) -> Iterator[Iterable[Counted]]:
    """Scan the rows at the peek's time that pass its predicate, in parts, as tasks send them.

    With a limit, they include all rows that can be within it. No task sends more bytes than `settings` allow.

    group: job group, by which the job can be cancelled. Raises what `PeekRun` raises.
    """
    tasks = tasks_at_a_time(spark)
    with versions.keep_files() as paths:
        made = in_parts(spark, tasks, _ScanTask(tuple(paths), peek, schema, settings, tasks), group)
    for part in made:
        yield decode(part)


@dataclass(frozen=True, slots=True)
class _ScanTask:
    """Task body of a scan; each task has its own share of the hashes."""

    paths: tuple[str, ...]
    peek: Peek
    schema: Schema
    settings: Parameters
    tasks: int

    def __call__(self, number: int) -> Iterator[bytes]:
        encode = value_encoder()
        for rows in self._rows(number):
            yield encode(rows)

    def _rows(self, number: int) -> Iterator[Sequence[Counted]]:
        peek = self.peek
        files = [ChangeFile(Path(path).parent, Path(path).name) for path in self.paths]
        predicate = None if peek.predicate is None else predicate_of(peek.predicate, self.schema)
        finish = peek_finisher(_within_a_part(peek.finishing), self.schema)
        for low, high in self._ranges(number):
            if not finish.add_rows(filter_rows(predicate, sum_changes(files, low, high, peek.time))):
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
    """Return the finishing of one part, which keeps all rows needed to finish the whole."""
    if finishing.limit is None:
        return Finishing()
    return replace(finishing, limit=finishing.limit + finishing.offset, offset=0, project=None)
