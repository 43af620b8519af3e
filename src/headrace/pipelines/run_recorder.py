"""Recorder of a run: observes updates of tables, and hands records to the event log and to listeners.

Recording never fails a run. What cannot be written or sent is reported once, as a warning.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGTERM, Signals, signal
from threading import Lock, current_thread, main_thread
from time import monotonic, perf_counter, process_time
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from headrace.errors import HeadraceError
from headrace.pipelines.catalog import PipelineCatalog, TableEntry, TableState
from headrace.pipelines.definitions import SHARED, Dataset, DatasetKind, TableName
from headrace.pipelines.event_log import (
    DELIVERY,
    PART,
    RUN,
    RUNNING,
    TABLE,
    EventLog,
    EventLogWriter,
    EventRecord,
    ExpectationRecord,
    Retention,
    timestamp,
)
from headrace.pipelines.input_identity import without_secrets
from headrace.pipelines.spec import PipelineSpec
from headrace.pipelines.weighted_rows import WEIGHT
from headrace.tables.version_folders import WEIGHT as TICK_WEIGHT
from headrace.tables.version_folders import data_files

if TYPE_CHECKING:
    from headrace.pipelines.pipeline_run import Event, Observer, RunReport

_LOG = logging.getLogger("headrace.pipelines")

_FINAL = ("COMPLETED", "FAILED", "SKIPPED")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run as listeners see it: when it begins (its state is RUNNING), and when it has ended.

    storage:  of the pipeline. started: when it began.
    run:      its record. tables: those of its tables and deliveries, in the order in which they came.
    datasets: the tables that it has brought up to date, or tried to.
    entries:  all published tables, at this moment.
    has_news: whether it is in the event log.
    """

    pipeline: str
    storage: Path
    started: datetime
    run: EventRecord
    tables: Sequence[EventRecord] = ()
    datasets: Mapping[str, Dataset] = field(default_factory=dict[str, Dataset])
    entries: Mapping[TableName, TableEntry] = field(default_factory=dict[TableName, TableEntry])
    has_news: bool = True


RunListener: TypeAlias = Callable[[RecordedRun], object]
"""Called when a run begins and when it has ended. What it raises is reported."""


@contextmanager
def recording(
    spec: PipelineSpec,
    catalog: PipelineCatalog,
    observer: Observer,
    listeners: Sequence[RunListener] = (),
    *,
    only_news: bool = False,
) -> Generator[RunRecorder]:
    """Record a run: the block calls `observe` for each event, and `end` with the report.

    only_news: do not log a run in which no table changes, and none fails that did not fail before.

    A SIGTERM in the block raises `Stopped` in the main thread, so that the end of the run is recorded.
    """
    recorder = RunRecorder(spec, catalog, observer, listeners, only_news)
    try:
        with _raising_on_sigterm():
            yield recorder
    except BaseException as error:
        recorder.fail(error)
        raise
    finally:
        recorder.close()


@contextmanager
def _raising_on_sigterm() -> Generator[None]:
    if current_thread() is not main_thread():
        yield
        return
    from headrace.pipelines.table_update import Stopped
    from headrace.spark.session import renew_connection

    def stop(number: int, _frame: FrameType | None) -> None:
        renew_connection()
        raise Stopped(Signals(number))

    before = signal(SIGTERM, stop)
    try:
        yield
    finally:
        signal(SIGTERM, before)


class RunRecorder:
    """Recorder of one run. `observe` may be called from several threads."""

    def __init__(
        self,
        spec: PipelineSpec,
        catalog: PipelineCatalog,
        observer: Observer,
        listeners: Sequence[RunListener],
        only_news: bool,
    ) -> None:
        self._catalog = catalog
        self._observer = observer
        self._listeners = list(listeners)
        self._held: list[EventRecord] | None = [] if only_news else None
        self._before = dict(catalog.entries)
        self._costs = _Costs()
        self._lock = Lock()
        self._start = perf_counter()
        started = datetime.now(UTC)
        self._writer = self._open(spec.event_retention, started)
        if self._writer is not None:
            catalog.run = max(catalog.run, self._writer.last.run + 1)
        run = EventRecord(
            RUN,
            catalog.run,
            str(uuid4()),
            timestamp(started),
            state=RUNNING,
            version_before=catalog.number,
            version_after=catalog.number,
        )
        self._seen = RecordedRun(spec.name, catalog.storage, started, run, entries=dict(catalog.published))
        self._append(run)
        if not only_news:
            self._notify()

    # -- what the run calls -----------------------------------------------------------------------------

    def observe(self, event: Event) -> None:
        """Record an event of a table, and hand it on; that of a shared part is recorded only."""
        try:
            with self._lock:
                self._record(event)
        except Exception as error:  # A damaged file that it counts is the run's to find, not ours.
            self._report(f"{event.table} could not be recorded", error)
        if event.dataset.kind is not DatasetKind.SHARED:
            self._observer(event)

    def restored(self, name: TableName, before: TableEntry | None, after: TableEntry, reason: str) -> None:
        """Record a table that was published as it was after an earlier run."""
        same = before is not None and before.version == after.version
        record = EventRecord(
            TABLE,
            self._seen.run.run,
            self._seen.run.run_id,
            timestamp(datetime.now(UTC)),
            str(name),
            "COMPLETED",
            method="rollback",
            reason=reason,
            rows_inserted=0 if same else None,
            rows_deleted=0 if same else None,
            rows=after.rows,
            state_bytes=self._state_bytes(name, after),
            file_bytes=_bytes_in(self._catalog.rows(name).folder(after.version)),
            version_before=before.version if before else 0,
            version_after=after.version,
        )
        self._seen = replace(self._seen, tables=[*self._seen.tables, record])
        self._append(record)

    def end(self, report: RunReport) -> None:
        """Record the end of a run, failed or not."""
        failed = [each for each in self._seen.tables if each.error]
        texts = [*map(_text_of, report.errors), *(_first_line_of(each) for each in failed)]
        code = report.errors[0].code if report.errors else failed[0].error_code if failed else ""
        self._finish("FAILED" if report.failed else "COMPLETED", code, "\n\n".join(texts))

    def fail(self, error: BaseException) -> None:
        """Record a run that has ended with an error or a signal."""
        if isinstance(error, Exception):
            self._finish("FAILED", _code_of(error), _text_of(error))
        else:
            self._finish("STOPPED", "", type(error).__name__)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()

    # -- records ----------------------------------------------------------------------------------------

    def _record(self, event: Event) -> None:
        name = str(event.table)
        if event.state.value == RUNNING:
            self._costs.begin(name)
        if event.state.value not in _FINAL:
            return
        record = self._of_table(event, self._costs.end(name))
        if record.kind != PART:  # Listeners know tables, with the costs of parts in those of the run.
            tables, datasets = [*self._seen.tables, record], {**self._seen.datasets, name: event.dataset}
            self._seen = replace(self._seen, tables=tables, datasets=datasets)
        if event.changed:
            self._release()
        self._append(record)

    def _of_table(self, event: Event, cost: _Cost) -> EventRecord:
        name, updated = event.table, event.updated
        recorded = any(each.table_name == str(name) for each in self._seen.tables)
        before = self._before.get(name)
        after = self._catalog.entries.get(name) if updated is None else updated.entry
        version = before.version if before else 0
        is_part = event.dataset.kind is DatasetKind.SHARED
        shared = event.dataset.title if is_part else ""
        record = EventRecord(
            PART if is_part else DELIVERY if recorded else TABLE,
            self._seen.run.run,
            self._seen.run.run_id,
            timestamp(datetime.now(UTC)),
            str(name),
            event.state.value,
            rows=after.rows if after else 0,
            seconds=round(event.seconds, 4),
            cpu_seconds=round(cost.process, 4),
            spark_cpu_seconds=round(cost.children, 4),
            state_bytes=self._state_bytes(name, after),
            file_bytes=self._file_bytes(name, after),
            version_before=version,
            version_after=after.version if after else 0,
            error_code=_code_of(event.error),
            error="" if event.error is None else _text_of(event.error),
            reason=shared,
        )
        if updated is None:
            return record
        inserted, deleted = rows_changed(self._catalog, name, before, updated.entry)
        return replace(
            record,
            method=updated.method.value,
            from_all_rows=updated.whole,
            reason="; ".join(filter(None, (shared, updated.why))),
            rows_read=updated.rows_in,
            rows_inserted=inserted,
            rows_deleted=deleted,
            expectations=[
                ExpectationRecord(name=each, passed=counts.passed, failed=counts.failed)
                for each, counts in updated.expectations.items()
            ],
        )

    def _state_bytes(self, name: TableName, entry: TableEntry | None) -> int:
        if entry is None or not entry.generation:
            return 0
        return _bytes_in(self._catalog.states(self._catalog.storage, name).folder(entry.generation))

    def _file_bytes(self, name: TableName, entry: TableEntry | None) -> int:
        return _bytes_in(self._catalog.rows(name).folder(entry.version)) if entry else 0

    def _finish(self, state: str, code: str, error: str) -> None:
        last = self._writer.last if self._writer is not None else EventRecord()
        if state != "COMPLETED" and (last.state, last.error) != (state, error):
            self._release()
        tables, cost = self._seen.tables, self._costs.total()
        of_tables = [each for each in tables if each.kind == TABLE]
        parts = {n: entry for n, entry in self._catalog.published.items() if n.database == SHARED}
        run = replace(
            self._seen.run,
            at=timestamp(datetime.now(UTC)),
            state=state,
            rows_read=sum(each.rows_read or 0 for each in of_tables),
            rows_inserted=sum(each.rows_inserted or 0 for each in of_tables),
            rows_deleted=sum(each.rows_deleted or 0 for each in of_tables),
            rows=sum(each.rows or 0 for each in of_tables),
            seconds=round(perf_counter() - self._start, 4),
            cpu_seconds=round(cost.process, 4),
            spark_cpu_seconds=round(cost.children, 4),
            state_bytes=sum(each.state_bytes for each in of_tables)
            + sum(self._state_bytes(name, entry) for name, entry in parts.items()),
            file_bytes=sum(each.file_bytes for each in of_tables)
            + sum(self._file_bytes(name, entry) for name, entry in parts.items()),
            version_after=self._catalog.number,
            error_code=code,
            error=error,
        )
        entries, has_news = dict(self._catalog.published), self._held is None
        self._seen = replace(self._seen, run=run, entries=entries, has_news=has_news)
        self._append(run)
        self._notify()

    # -- what records are given to ----------------------------------------------------------------------

    def _open(self, retention: Retention, started: datetime) -> EventLogWriter | None:
        try:
            return EventLog(self._catalog.storage).writer(started, retention)
        except OSError as error:
            self._report("the event log cannot be read", error)
            return None

    def _append(self, *records: EventRecord) -> None:
        if self._held is not None:
            self._held += records
            return
        try:
            if self._writer is not None:
                self._writer.append(*records)
        except OSError as error:
            self._report("the event log cannot be written", error)
            self.close()
            self._writer = None

    def _release(self) -> None:
        """Write what was held back: the run has news."""
        if self._held is not None:
            records, self._held = self._held, None
            self._append(*records)

    def _notify(self) -> None:
        for listener in list(self._listeners):
            try:
                listener(self._seen)
            except Exception as error:  # Libraries may raise anything; the run has nothing to do with it.
                self._report(f"{listener} failed", error)
                self._listeners.remove(listener)

    @staticmethod
    def _report(what: str, error: Exception) -> None:
        _LOG.warning("%s: %s", what, without_secrets(str(error)) or type(error).__name__)


def _text_of(error: Exception) -> str:
    if isinstance(error, HeadraceError):
        return without_secrets(str(error))
    # Only what Spark or a function raises needs Spark's classes to be read.
    from headrace.pipelines.query_errors import message_of

    return message_of(error)


def _first_line_of(record: EventRecord) -> str:
    return f"{record.table_name}: " + record.error.partition("\n")[0]


def _code_of(error: Exception | None) -> str:
    return error.code if isinstance(error, HeadraceError) else type(error).__name__ if error else ""


def rows_changed(
    catalog: PipelineCatalog, name: TableName, before: TableEntry | None, after: TableEntry
) -> tuple[int | None, int | None]:
    """Return the numbers of rows that were inserted and deleted between two versions; None where unknown."""
    if before is None:
        return after.rows, 0
    if before.version == after.version:
        return 0, 0
    folders = [catalog.changes(name).folder(at) for at in range(before.version + 1, after.version + 1)]
    if all(folder.is_dir() for folder in folders):
        return _sums(_rows_in(file, WEIGHT) for folder in folders for file in data_files(folder))
    ticked = _tick_files(catalog, name, before, after)
    if len(ticked) == 1:
        return _rows_in(ticked[0], TICK_WEIGHT)
    rows = catalog.rows(name)
    old, new = ({each.name for each in data_files(rows.folder(of.version))} for of in (before, after))
    return (after.rows - before.rows, 0) if old and old <= new else (None, None)


def _tick_files(
    catalog: PipelineCatalog, name: TableName, before: TableEntry, after: TableEntry
) -> list[Path]:
    """Return the files of changes that the table's state has given out for a version.

    One file has each row once; of several, a row in one may cancel a row in another.
    """
    if not after.generation or after.generation != before.generation:
        return []
    state = TableState(catalog.states(catalog.storage, name).folder(after.generation))
    return [file for folder in state.ticks_after(before.tick) for file in data_files(folder)]


def _sums(counts: Iterable[tuple[int, int]]) -> tuple[int, int]:
    found = list(counts)
    return sum(n for n, _ in found), sum(n for _, n in found)


def _rows_in(file: Path, column: str) -> tuple[int, int]:
    """Return the numbers of rows that a file of changes inserts and deletes. column: of their weights."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    compute: Any = pc
    held = pq.ParquetFile(file)
    if column not in held.schema_arrow.names:
        return held.metadata.num_rows, 0
    weights = compute.fill_null(held.read([column])[column], 1)
    inserted = compute.sum(compute.max_element_wise(weights, 0)).as_py() or 0
    return inserted, inserted - (compute.sum(weights).as_py() or 0)


def _bytes_in(folder: Path | str) -> int:
    """Return the bytes of the files in a folder; 0 if it is not there."""
    found = 0
    try:
        with os.scandir(folder) as entries:
            for each in entries:
                found += _bytes_in(each.path) if each.is_dir(follow_symlinks=False) else each.stat().st_size
    except OSError:  # A state may be compacted meanwhile.
        return found
    return found


# -- processor time -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Cost:
    """Processor seconds of this process and of those that it has started."""

    process: float = 0.0
    children: float = 0.0


@dataclass(slots=True)
class _Costs:
    """Processor time by table. Time in which several tables were at work is divided among them."""

    _clock: ProcessorClock = field(default_factory=lambda: ProcessorClock())
    _began: _Cost = field(init=False)
    _last: _Cost = field(init=False)
    _running: dict[str, _Cost] = field(default_factory=dict[str, _Cost])

    def __post_init__(self) -> None:
        self._began = self._last = self._clock.read()

    def begin(self, table: str) -> None:
        self._divide()
        self._running[table] = _Cost()

    def end(self, table: str) -> _Cost:
        if table not in self._running:
            return _Cost()
        self._divide()
        return self._running.pop(table)

    def total(self) -> _Cost:
        self._clock.look_again()
        return _difference(self._clock.read(), self._began)

    def _divide(self) -> None:
        now = self._clock.read()
        spent, self._last = _difference(now, self._last), now
        for table, so_far in self._running.items():
            share = len(self._running)
            self._running[table] = _Cost(
                so_far.process + spent.process / share, so_far.children + spent.children / share
            )


def _difference(now: _Cost, before: _Cost) -> _Cost:
    return _Cost(now.process - before.process, max(0.0, now.children - before.children))


class ProcessorClock:
    """Clock of the processor time of this process, and of all that it has started, as far as Linux tells.

    Which processes those are is looked up anew after a while only: a JVM has hundreds of threads, each of
    which may have started some.
    """

    _LOOK_AGAIN = 2.0
    _TICKS = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100

    def __init__(self) -> None:
        self._found: dict[int, tuple[float, list[int]]] = {}

    def look_again(self) -> None:
        """Look up the processes at the next reading."""
        self._found.clear()

    def read(self) -> _Cost:
        reaped = os.times()
        children = sum(map(self._seconds, self._children(os.getpid())))
        return _Cost(process_time(), children + reaped.children_user + reaped.children_system)

    def _seconds(self, process: int) -> float:
        """Return the time of a process and of its children, those that have ended too."""
        try:
            text = Path(f"/proc/{process}/stat").read_text(encoding="ascii", errors="replace")
        except OSError:
            return 0.0
        # The second field is the name, which may hold blanks; the times are the 14th to 17th.
        own = sum(map(int, text.rpartition(")")[2].split()[11:15])) / self._TICKS
        return own + sum(map(self._seconds, self._children(process)))

    def _children(self, process: int) -> list[int]:
        until, found = self._found.get(process, (0.0, []))
        if monotonic() < until:
            return found
        found = []
        with suppress(OSError):  # A thread has ended, or the system does not tell.
            for thread in os.listdir(f"/proc/{process}/task"):
                with open(f"/proc/{process}/task/{thread}/children") as listed:
                    found += map(int, listed.read().split())
        self._found[process] = monotonic() + self._LOOK_AGAIN, found
        return found
