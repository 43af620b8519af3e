"""Spark runtime of a replica: views maintained by Spark, with state and versions in a folder.

The replica's thread never waits here. A pool of threads advances dataflows, each by one thread at a time;
others read for peeks; one watches the collections. `answers` and `frontiers` return their results, after a
`wake`. If Spark itself dies, the replica ends, and resumes from the folder when it is started again.

A peek by keys, or at a small index, is read from the index's files by a thread. A scan of a large index is a
Spark job in its own job group, so that it can be cancelled; each task scans a share of the hashes, and sends
the matching rows.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.compute.errors import ComputeError, RuntimeLost, StoreUnavailable
from headrace.compute.plans import predicate_of
from headrace.compute.protocol.commands import Dataflow, Finishing, InstanceConfig, Parameters, Peek
from headrace.compute.protocol.responses import Counted, RowsResponse, Stashed
from headrace.compute.protocol.row_batch import rows_size
from headrace.compute.replica.building import PlanDecoder, RuntimeContext, check_keys, check_since
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
from headrace.compute.replica.runtime import Answer
from headrace.compute.replica.runtime_core import RuntimeCore, wall_clock_milliseconds
from headrace.compute.replica.spark.dataflow import LazyStore, SparkBuild, SparkDataflow, SparkIndex
from headrace.compute.replica.spark.inputs import Versions
from headrace.compute.replica.spark.threads import SparkThreads, Stores
from headrace.errors import HeadraceError, SparkProcessDied, SparkUnavailable
from headrace.expr.types import DataType, FloatingType, Schema
from headrace.spark.session import tasks_at_a_time
from headrace.spark.ticks.failures import quiet
from headrace.spark.ticks.output import in_parts
from headrace.state.codec import decode, value_encoder
from headrace.tables.change_files import LAST_HASH, ChangeFile, sum_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


__all__ = [
    "SparkRuntime",
]

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

    def _begin(self, pending: _Pending) -> None:
        with self._lock:
            if not pending.waiting or not self._is_settled(pending):
                return
            pending.waiting = False
        self._threads.run_job(partial(self._answer, pending))

    def _is_settled(self, pending: _Pending) -> bool:
        """Return whether work can start. True for a collection, which only a thread can check."""
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

    def _read(self, pending: _Pending, stores: Stores) -> RowsResponse | Stashed | None:
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


ADVANCING = 2
"""Number of threads that advance dataflows; more would only wait for each other's jobs."""
PEEKING = 4
LOOK_EVERY = 0.2
"""Interval in seconds at which collections are polled if no notification arrives."""


class SparkRuntime(RuntimeCore[SparkIndex, SparkDataflow]):
    """Runtime on Spark; see the module docstring.

    state:  folder that outlives the process, for this replica alone.
    spark:  session to use, which is not stopped; by default a session is started and stopped.
    copies: folder for copies; `state`/copies by default.
    clock:  milliseconds. timer: seconds.
    """

    def __init__(
        self,
        config: InstanceConfig,
        wake: Callable[[], None],
        *,
        state: Path,
        spark: SparkSession | None = None,
        copies: Path | None = None,
        allow_callables: bool = False,
        clock: Callable[[], int] = wall_clock_milliseconds,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(config, wake, state, copies, PlanDecoder(allow_callables), clock, timer)
        self._lock = threading.RLock()
        self._lost: HeadraceError | None = None
        self._closed = threading.Event()
        self._running: list[SparkDataflow] = []
        self._busy: set[SparkDataflow] = set()
        self._again: set[SparkDataflow] = set()
        self._session = _Session(spark)
        self._store = LazyStore(config.collections)
        self._folder = state / "dataflows"
        self._folder.mkdir(parents=True, exist_ok=True)
        self._found = set(self._folder.iterdir())
        self._stepped = False
        self._advancing = SparkThreads("advance", ADVANCING, config.collections)
        self._peeking = SparkThreads("peek", PEEKING, config.collections)
        self._watching = SparkThreads("watch", 1, config.collections)
        self._peeks = self._spark_peeks = SparkPeeks(
            self._around, self._stash, self._peeking, self._session.get
        )
        self._watching.run_job(self._watch)

    def _build(self, dataflow: Dataflow) -> SparkDataflow:
        uri = self.config.collections
        running = SparkBuild(self._around, dataflow, uri, self._folder, self._store).build()
        with self._lock:
            self._found.discard(running.folder)
            self._running.append(running)
        return running

    def _end(self, running: SparkDataflow) -> None:
        self._advance_soon(running)

    def step(self, seconds: float) -> bool:
        self._stepped = True
        self._stash.expire()
        self._check_not_lost()
        return False

    def close(self) -> None:
        self._closed.set()
        self._peeks.drop_all()
        self._session.cancel_all()
        for threads in (self._watching, self._advancing, self._peeking):
            threads.close()
        for running in self._running:
            running.close(remove=False)
        self._store.close()
        self._stash.close()
        self._session.close()

    def _advance_soon(self, running: SparkDataflow) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            if running in self._busy:
                self._again.add(running)
                return
            self._busy.add(running)
        self._advancing.run_job(partial(self._advance, running))

    def _advance(self, running: SparkDataflow, stores: Stores) -> None:
        more, before = False, running.upper
        try:
            if not running.wanted and not running.versions_wanted:
                self._close_one(running)
            elif running.started and not self._waits_for_folder(running):
                if not running.ended:
                    more = running.advance(stores(), self._session.get)
                more |= running.work_exports()
        except StoreUnavailable:
            pass
        except (SparkProcessDied, SparkUnavailable) as error:
            self._lose(error)
        except HeadraceError as error:
            running.fail(error)
        with self._lock:
            self._busy.discard(running)
            more |= running in self._again
            self._again.discard(running)
        if running.upper != before or running.failed is not None:
            self._advanced(running)
        if more:
            self._advance_soon(running)

    def _waits_for_folder(self, running: SparkDataflow) -> bool:
        """Return whether an earlier, dropped dataflow of the same exports must still remove the folder."""
        with self._lock:
            earlier = self._running[: self._running.index(running)]
        return any(other.folder == running.folder for other in earlier)

    def _advanced(self, running: SparkDataflow) -> None:
        """Wake the peeks and dataflows that wait for a dataflow's progress."""
        self._spark_peeks.wake()
        with self._lock:
            others = [other for other in self._running if other is not running]
        for other in others:
            if other.reads(running):
                self._advance_soon(other)
        self.wake()

    def _close_one(self, running: SparkDataflow) -> None:
        with self._lock:
            if running not in self._running:
                return
        running.close(remove=True)
        with self._lock:
            self._running.remove(running)

    def _watch(self, stores: Stores) -> None:
        while not self._closed.is_set():
            try:
                stores().wait(LOOK_EVERY)
            except ComputeError:
                self._closed.wait(LOOK_EVERY)
            with self._lock:
                due = [each for each in self._running if each.wanted or each not in self._busy]
            for running in due:
                self._advance_soon(running)
            self._spark_peeks.wake()
            if self._stepped:
                self._forget_found()

    def _forget_found(self) -> None:
        """Delete stored dataflows not requested before the first step: they have been dropped."""
        with self._lock:
            found, self._found = self._found, set[Path]()
        for folder in found:
            shutil.rmtree(folder, ignore_errors=True)

    def _respond(self, answer: Answer) -> None:
        super()._respond(answer)
        self.wake()

    def _lose(self, error: HeadraceError) -> None:
        self._lost = error
        self.wake()

    def _check_not_lost(self) -> None:
        lost = self._lost
        if lost is not None:
            raise RuntimeLost(
                "Spark died, and with it the runtime of this replica",
                why=f"{lost.what}. {lost.why}",
                fix="restart the replica with the same folder: it resumes from there",
            ) from lost


class _Session:
    """Spark session that is either given or started in the background by the runtime."""

    def __init__(self, given: SparkSession | None) -> None:
        self._given = given
        self._started: SparkSession | None = None
        self._quiet = ExitStack()
        self._lock = threading.Lock()
        self._starting = threading.Thread(target=self._start, name="start Spark", daemon=True)
        if given is None:
            self._starting.start()

    def _start(self) -> None:
        with suppress(HeadraceError):  # `get` tries again, and raises it
            self.get()

    def get(self) -> SparkSession:
        """Return the session, waiting for its start."""
        if self._given is not None:
            return self._given
        with self._lock:
            if self._started is None:
                from headrace.spark.session import session

                self._started = session()
                self._quiet.enter_context(quiet(self._started))
            return self._started

    def cancel_all(self) -> None:
        """Cancel the jobs of a session started by the runtime."""
        started: Any = self._started
        if started is not None:
            with _gone_already():
                started.sparkContext.cancelAllJobs()

    def close(self) -> None:
        if self._given is None:
            self._starting.join()
        if self._started is not None:
            with _gone_already():
                self._started.stop()
            self._quiet.close()


@contextmanager
def _gone_already() -> Generator[None]:
    """Ignore errors from stopping a Spark session that has already died."""
    from py4j.protocol import Py4JError  # pyright: ignore[reportMissingTypeStubs]

    with suppress(Py4JError, OSError):
        yield
