"""Event log of a pipeline: records of its runs and of each table in them, as JSON lines in its storage.

    <storage>/events/2026-11-30.jsonl   records of the runs that began on that day (UTC)

Records are only appended. A run writes one when it begins, one for each table as soon as that is done, and
one when it ends; so a killed run has left what it did. The next run records its end (`DIED`), and removes
the half of a line that a full disk or a power cut may have left. Lines are not synced one by one: after a
crash of the machine the last ones may be missing.

Each file begins with a line of kind `schema`, which has a value of every type, since readers infer types
from values: DuckDB, Polars, pyarrow and Spark find the same columns in every file.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any, TypedDict

from headrace.errors import WrongType
from headrace.expr.time_texts import duration
from headrace.file_system import write_file
from headrace.pipelines.definitions import parse_table_name
from headrace.pipelines.errors import UnknownDataset

RETENTION = "headrace.event_retention"
"""Setting of a project: how long records are kept, such as "90 days" or "1000 runs"."""

_SUFFIX = ".jsonl"
_RUNS = ("run", "runs")


class ExpectationRecord(TypedDict):
    """Rows that met an expectation, and rows that did not."""

    name: str
    passed: int
    failed: int


@dataclass(frozen=True, slots=True)
class EventRecord:
    """Record of a run, or of a table, shared part or delivery in it.

    kind:     "run", "table", "part" that tables share, "delivery" of a table's version that failed, or
              "schema".
    run:      number of the run, that of the catalogue which it publishes. run_id: UUID of it.
    at:       when it was written.
    table_name: of the table or part; empty for a run.
    state:    of a table COMPLETED, FAILED or SKIPPED; of a run RUNNING, COMPLETED, FAILED, STOPPED or DIED.
    method, from_all_rows, reason: how the table was brought up to date, and why not otherwise; of a part,
              also the tables that share it.
    rows_read: changes and rows of streams that were read. inserted, deleted: rows by which the new version
              differs from the one before. rows: of the new version. None: not known.
    seconds:  of the clock. cpu_seconds: of this process; spark_cpu_seconds: of the processes that it has
              started on this machine, a JVM and its workers. Tables that run side by side share them equally.
    state_bytes, file_bytes: of the table's state, and of the files of its last version.
    version_before, version_after: of the table, of a run the number of the published catalogue; 0: none.
    error_code, error: of what failed, without secrets.
    """

    kind: str = ""
    run: int = 0
    run_id: str = ""
    at: str = ""
    table_name: str = ""
    state: str = ""
    method: str = ""
    from_all_rows: bool = False
    reason: str = ""
    rows_read: int | None = 0
    rows_inserted: int | None = 0
    rows_deleted: int | None = 0
    rows: int | None = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    spark_cpu_seconds: float = 0.0
    state_bytes: int = 0
    file_bytes: int = 0
    version_before: int = 0
    version_after: int = 0
    error_code: str = ""
    error: str = ""
    expectations: Sequence[ExpectationRecord] = ()

    @property
    def seconds_since_epoch(self) -> float | None:
        """When it was written; None if that is no time."""
        try:
            return datetime.fromisoformat(self.at).timestamp()
        except ValueError:
            return None

    def to_json(self) -> str:
        """Return the record as a line."""
        return json.dumps(asdict(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_fields(cls, given: Mapping[str, Any]) -> EventRecord:
        """Return a record of the known fields: those of a later version may have more."""
        return cls(**{name: given[name] for name in _FIELDS if name in given})


_FIELDS = tuple(field.name for field in fields(EventRecord))

RUN, TABLE, PART, DELIVERY = "run", "table", "part", "delivery"
RUNNING, DIED = "RUNNING", "DIED"

_SCHEMA = EventRecord("schema", expectations=[ExpectationRecord(name="", passed=0, failed=0)])


def timestamp(at: datetime) -> str:
    """Return a time as records have it: always of one form, so that readers infer one type."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Retention:
    """Records to keep: of a time, or of a number of runs. Files are removed as a whole."""

    age: timedelta | None = timedelta(days=90)
    runs: int | None = None

    @classmethod
    def parse(cls, text: str) -> Retention:
        """Parse "90 days" or "1000 runs". Raises `WrongType`.

        >>> Retention.parse("1000 runs")
        Retention(age=None, runs=1000)
        """
        count, _, unit = text.strip().partition(" ")
        if unit.strip() not in _RUNS:
            return cls(duration(text))
        if not count.isdecimal() or not int(count):
            raise WrongType(f"{text!r} is not a number of runs", fix='write a number, such as "1000 runs"')
        return cls(None, int(count))


class EventLog:
    """Event log of a storage."""

    def __init__(self, storage: Path) -> None:
        self.folder = storage / "events"

    def days(self) -> list[tuple[date, Path]]:
        """List the files with the day of each, oldest first."""
        found: list[tuple[date, Path]] = []
        for name in os.listdir(self.folder) if self.folder.is_dir() else ():
            try:
                day = date.fromisoformat(name.removesuffix(_SUFFIX))
            except ValueError:
                continue
            if name.endswith(_SUFFIX):
                found.append((day, self.folder / name))
        return sorted(found)

    def records(
        self, *, table: str | None = None, run: int | None = None, last: int | None = None
    ) -> list[EventRecord]:
        """Return records, oldest first. Lines that are no records are skipped.

        table: of this one only. run: of this one only. last: of so many runs that have one.
        """
        found: list[EventRecord] = []
        for _, file in reversed(self.days()):
            of_day = [
                each
                for each in _records_in(file)
                if (table is None or each.table_name == table) and (run is None or each.run == run)
            ]
            found = of_day + found
            if last is not None and len(runs := {each.run for each in found}) >= last:
                kept = set(sorted(runs)[-last:])
                return [each for each in found if each.run in kept]
        return found

    def newest_first(self) -> Iterator[EventRecord]:
        """Yield all records from the last one on; files are read as they are needed. Raises OSError."""
        for _, file in reversed(self.days()):
            yield from reversed(list(_records_in(file)))

    def erase_errors(self) -> None:
        """Remove the texts of errors, which may quote rows. No run may be at work. Raises OSError."""
        for _, file in self.days():
            records = [each for each in map(_record_of, file.read_bytes().splitlines(keepends=True)) if each]
            if any(each.error for each in records):
                text = "".join(replace(each, error="").to_json() + "\n" for each in records)
                write_file(file, text.encode("utf-8", "replace"), durable=True)

    def writer(self, started: datetime, retention: Retention) -> EventLogWriter:
        """Open the log for one run at a time, and complete what a run that died has left. Raises OSError."""
        days = self.days()
        last = next(filter(None, (_repaired(file) for _, file in reversed(days[-2:]))), EventRecord())
        return EventLogWriter(self, started, retention, last)


class EventLogWriter:
    """Event log open for one run. Its methods raise OSError if the disk is full or refuses.

    last: last record of earlier runs.
    """

    def __init__(self, log: EventLog, started: datetime, retention: Retention, last: EventRecord) -> None:
        self._log = log
        self._day = started.astimezone(UTC).date()
        self._retention = retention
        self._handle: int | None = None
        self.last = last

    def append(self, *records: EventRecord) -> None:
        """Append records, all or none."""
        if self._handle is None:
            records = (*self._opened(), *records)
        assert self._handle is not None
        lines = "".join(each.to_json() + "\n" for each in records).encode("utf-8", "replace")
        size = os.fstat(self._handle).st_size
        try:
            if os.write(self._handle, lines) != len(lines):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError:
            os.ftruncate(self._handle, size)
            raise

    def close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _opened(self) -> Iterator[EventRecord]:
        """Open the file of the day, and return what comes before the first record of the run."""
        self._log.folder.mkdir(parents=True, exist_ok=True)
        file = self._log.folder / f"{self._day.isoformat()}{_SUFFIX}"
        self._handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
        if not os.fstat(self._handle).st_size:
            self._remove_old()
            yield replace(_SCHEMA, run=self.last.run, at=timestamp(datetime.now(UTC)))
        if self.last.kind in (TABLE, PART, DELIVERY) or self.last.state == RUNNING:
            yield EventRecord(RUN, self.last.run, self.last.run_id, timestamp(datetime.now(UTC)), state=DIED)

    def _remove_old(self) -> None:
        """Remove the files of days whose records are no longer kept."""
        days = self._log.days()
        if self._retention.age is not None:
            oldest = self._day - self._retention.age
            removed = [file for day, file in days if day < oldest]
        else:
            assert self._retention.runs is not None
            first = self.last.run + 2 - self._retention.runs
            # The runs of a file are all older than the first one of the next.
            removed = [file for (_, file), (_, after) in pairwise(days) if _first_run(after) <= first]
        for file in removed:
            file.unlink(missing_ok=True)


class EventFollower:
    """Follower of a log: the records of its last runs, oldest first, each line read once.

    runs: how many to remember.
    """

    def __init__(self, log: EventLog, runs: int) -> None:
        self.records: list[EventRecord] = []
        self._log = log
        self._runs = runs
        self._sizes: dict[Path, int] = {}
        self._ends: dict[Path, int] = {}

    def look(self) -> bool:
        """Read what was appended since the last look; return whether that is anything. Raises OSError."""
        days = [file for _, file in self._log.days()]
        sizes = {file: file.stat().st_size for file in days}
        if sizes == self._sizes:
            return False
        if any(end > sizes.get(file, -1) for file, end in self._ends.items()):
            # Old files are removed, and errors are erased from all of them.
            self._ends, self.records = {}, []
        found: list[EventRecord] = []
        for file in reversed(days):
            start, end = self._ends.get(file, 0), _end_of_last_line(file, sizes[file])
            if end > start and len({each.run for each in found}) < self._runs:
                found = [*_records_between(file, start, end), *found]
            self._ends[file] = end
        runs = sorted({each.run for each in (*self.records, *found)})[-self._runs :]
        self.records = [each for each in (*self.records, *found) if each.run >= runs[0]]
        self._sizes = sizes
        return True


def _end_of_last_line(file: Path, size: int) -> int:
    """Return up to where the first `size` bytes of a file hold whole lines."""
    with open(file, "rb") as lines:
        end = size
        while end:
            start = max(0, end - _BLOCK)
            lines.seek(start)
            found = lines.read(end - start).rfind(b"\n")
            if found >= 0:
                return start + found + 1
            end = start
    return 0


def _records_between(file: Path, start: int, end: int) -> Iterator[EventRecord]:
    with open(file, "rb") as lines:
        lines.seek(start)
        yield from _known(lines.read(end - start).splitlines(keepends=True))


def _records_in(file: Path) -> Iterator[EventRecord]:
    with open(file, "rb") as lines:
        yield from _known(lines)


def _known(lines: Iterable[bytes]) -> Iterator[EventRecord]:
    for line in lines:
        record = _record_of(line)
        if record is not None and record.kind != _SCHEMA.kind:
            yield record


def _record_of(line: bytes) -> EventRecord | None:
    """Return the record of a line; None for a torn one, and for one that is something else."""
    try:
        given = json.loads(line)
    except ValueError:
        return None
    whole = line.endswith(b"\n") and isinstance(given, dict) and isinstance(given.get("run"), int)
    return EventRecord.from_fields(given) if whole else None


def _first_run(file: Path) -> int:
    """Return the number of the first run in a file; one beyond all runs if there is none."""
    return next((each.run for each in _records_in(file)), 1 << 62)


def find_table(log: EventLog, text: str, database: str) -> str:
    """Return the name of a table that the log has records of. Raises `UnknownDataset`."""
    known = {each.table_name: each.kind for each in log.records() if each.table_name}
    wanted = str(parse_table_name(text, database)).lower()
    for name in known:
        if name.lower() == wanted:
            return name
    tables = sorted(name for name, kind in known.items() if kind != PART)
    raise UnknownDataset(
        f"the event log has no table {text!r}",
        fix=f"give one of: {', '.join(tables) or 'there is none yet'}",
        dataset=text,
    )


_BLOCK = 1 << 14


def _repaired(file: Path) -> EventRecord | None:
    """Remove a torn last line of a file, and return the record of the last line; None if there is none."""
    with open(file, "r+b") as handle:
        size = at = handle.seek(0, os.SEEK_END)
        tail = b""
        while at and tail.count(b"\n") < 2 + (not tail.endswith(b"\n")):
            at = max(0, at - _BLOCK)
            handle.seek(at)
            tail = handle.read(size - at)
        torn = len(tail) - (tail.rfind(b"\n") + 1)
        if torn:
            handle.truncate(size - torn)
        lines = tail[: len(tail) - torn].splitlines(keepends=True)
        return _record_of(lines[-1]) if lines else None
