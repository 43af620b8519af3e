"""Page of a pipeline: its tables with freshness and failures, their runs, rows, changes and expectations.

All of it comes from the pipeline's storage. Nothing is run and nothing is written, so a page may stay open
while runs come and go, and needs neither Spark nor a lease.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import quote

from headrace.errors import HeadraceError, UnreadableSource
from headrace.pipelines.catalog import SINK, PipelineCatalog, TableEntry
from headrace.pipelines.definitions import CATALOG, DROPPED, TableName
from headrace.pipelines.event_log import PART, RUN, RUNNING, TABLE, EventFollower, EventLog, EventRecord
from headrace.pipelines.input_identity import mark_at
from headrace.pipelines.kept_analysis import KeptAnalysis, load_with_any_policy
from headrace.pipelines.stored_rows import RowPage, StoredVersion, is_number, page_of
from headrace.pipelines.table_diff import diff_table
from headrace.pipelines.table_files import LIMIT
from headrace.pipelines.table_status import (
    Health,
    KnownTable,
    TableStatus,
    counted,
    known_tables,
    running_since,
    table_statuses,
)
from headrace.pipelines.weighted_rows import WEIGHT
from headrace.ui.server import WHY_SECONDS, OneAtATime
from headrace.ui.view_rows import MAX_ASKED
from headrace.view import to_svg
from headrace.view.picture import DrawnInput, DrawnTable, picture_of_tables, shape_of_table

if TYPE_CHECKING:
    from headrace.pipelines.spec import PipelineSpec
    from headrace.ui.server import JsonObject

MAX_RUNS = 100
"""Runs that the page shows: the last ones."""
MAX_SEARCH = 1_000
"""Characters of a search."""
_POLL_SECONDS = 1.0
"""Seconds between two polls of the storage."""
_POLL_INPUTS_SECONDS = 3.0
"""Seconds between two polls of the files of inputs."""

FindWhy: TypeAlias = Callable[[str, str], "JsonObject"]


@dataclass(frozen=True, slots=True)
class PageState:
    """Everything that a page has read of a pipeline, at one moment.

    version: rises with every change. edition: rises when there are other tables, or others are read.
    marks:   see `PipelinePage._project_marks`. kept: the analysis; note: why there is none.
    entries: of the published tables. records: of the last runs, oldest first.
    problem: text of the error of the last poll; empty without one.
    polled, inputs_polled: monotonic seconds of the last polls.
    """

    version: int = 0
    edition: int = 0
    marks: Any = None
    kept: KeptAnalysis | None = None
    note: str = ""
    entries: Mapping[TableName, TableEntry] = field(default_factory=dict[TableName, TableEntry])
    records: Sequence[EventRecord] = ()
    tables: Sequence[KnownTable] = ()
    statuses: Sequence[TableStatus] = ()
    problem: str = ""
    polled: float = float("-inf")
    inputs_polled: float = float("-inf")

    def with_rows(self) -> list[TableName]:
        """Return the published tables that have rows."""
        names = [table.name for table in self.tables if table.name in self.entries]
        return [name for name in names if self.entries[name].layout != SINK]

    def drawn(self) -> list[KnownTable]:
        """Return the tables to draw: dropped rows and violations only if others read them."""
        read = {each.table for table in self.tables if table.beside is None for each in table.inputs}
        return [table for table in self.tables if table.beside is None or table.name in read]

    def labels(self, database: str) -> Mapping[TableName, str]:
        return {table.name: _label_of(table, database) for table in self.tables}


class PipelinePage:
    """Page of a project. find_why: explains a row of a table, given as JSON; takes seconds.

    Several threads ask. What they see is one state, which `refresh` replaces as a whole.
    """

    def __init__(self, spec: PipelineSpec, find_why: FindWhy) -> None:
        self._spec = spec
        self._find_why = OneAtATime(find_why)
        self._follower = EventFollower(EventLog(spec.storage), MAX_RUNS)
        self._state = PageState()
        self._polling, self._comparing = Lock(), Lock()
        self._compared: _Compared | None = None

    # -- what there is ----------------------------------------------------------------------------------

    def refresh(self) -> None:
        now = time.monotonic()
        with self._polling:
            before = self._state
            if now - before.polled < _POLL_SECONDS:
                return
            try:
                state = replace(self._polled(before, now), problem="")
            except (HeadraceError, OSError) as error:  # A run replaces files; a damaged one stays so.
                state = replace(before, problem=str(error))
            if state.problem != before.problem:
                state = replace(state, version=before.version + 1)
            self._state = replace(state, polled=now)

    def _polled(self, before: PageState, now: float) -> PageState:
        """Return the state as the storage is now. Raises OSError and the errors of damaged files."""
        marks = self._project_marks()
        self._follower.look()
        records = self._follower.records
        is_same = marks == before.marks and records is before.records
        if is_same and now - before.inputs_polled < _POLL_INPUTS_SECONDS:
            return before
        state = before if marks == before.marks else replace(self._with_project(before), marks=marks)
        tables = known_tables(state.kept, state.entries, records)
        statuses = table_statuses(self._spec.storage, tables, state.entries, records)
        return replace(
            state,
            version=before.version + (records is not before.records or statuses != before.statuses),
            edition=before.edition + (tables != before.tables),
            records=records,
            tables=tables,
            statuses=statuses,
            inputs_polled=now,
        )

    def _with_project(self, state: PageState) -> PageState:
        """Return a state with the catalogue and the analysis as they are now."""
        entries = PipelineCatalog.last_entries(self._spec.storage)
        kept = load_with_any_policy(self._spec)
        analysis = kept if isinstance(kept, KeptAnalysis) else None
        return replace(state, entries=entries, kept=analysis, note="" if analysis else str(kept))

    def _project_marks(self) -> list[Any]:
        """Return what tells whether the project, its analysis or its catalogue may be another."""
        storage = self._spec.storage
        files = [self._spec.file, storage / "analysis/kept.json", storage / "catalog/current/catalog.json"]
        with_project = [*files, *(file for file, _ in self._spec.files())]
        return [(str(file), mark_at(file)) for file in with_project]

    def version(self) -> int:
        return self._state.version

    def overview(self) -> JsonObject:
        self.refresh()
        state = self._state
        drawn, labels = state.drawn(), state.labels(self._spec.database)
        picture = picture_of_tables(self._spec.name, [_drawn(table, self._spec.database) for table in drawn])
        return {
            "kind": "pipeline",
            "title": self._spec.name,
            "storage": str(self._spec.storage),
            "svg": to_svg(picture),
            "nodes": {f"t{at}": str(table.name) for at, table in enumerate(drawn)},
            "note": state.note,
            "why_seconds": WHY_SECONDS,
            "sources": {},
            "sinks": {str(name): labels[name] for name in state.with_rows()},
            "tables": [_described(table, labels[table.name], state.entries) for table in state.tables],
        }

    # -- how it is --------------------------------------------------------------------------------------

    def status(self, after: int) -> JsonObject:
        state = self._state
        return {
            "tick": state.version,
            "ticks": [],
            "watermarks": {},
            "late": {},
            "sources": {},
            "state_bytes": None,
            "edition": state.edition,
            "views": {str(name): state.entries[name].version for name in state.with_rows()},
            "figures": self._figures(state),
            "failure": self._failure(state),
            "tables": [_status(each, self._spec.database) for each in state.statuses],
            "runs": len({each.run for each in state.records}),
        }

    def _figures(self, of: PageState) -> list[list[str]]:
        own = [each for each in of.statuses if _is_of_project(each.table)]
        runs = [each for each in of.records if each.kind == RUN]
        last = runs[-1] if runs else None
        state = last.state.lower() if last else "never"
        if last and last.state == RUNNING and running_since(self._spec.storage, [last]) is None:
            state = "died"
        count = {health: sum(each.health is health for each in own) for health in Health}
        return [
            ["Last run", f"{last.run}: {state}" if last else "none yet"],
            ["Tables", f"{len(own):,}"],
            ["Up to date", f"{count[Health.FRESH]:,} of {len(own):,}"],
            ["Failed or skipped", f"{count[Health.FAILED] + count[Health.SKIPPED]:,}"],
            ["Rows", f"{sum(each.entry.rows for each in own if each.entry):,}"],
        ]

    def _failure(self, of: PageState) -> str:
        if of.problem:
            return of.problem
        failed = [each for each in of.statuses if each.health is Health.FAILED]
        lines = [_first_line(each, self._spec.database) for each in failed]
        if lines:
            return "\n".join([f"{counted(len(lines), 'table')} failed:", *lines])
        runs = [each for each in of.records if each.kind == RUN]
        return runs[-1].error if runs and runs[-1].state == "FAILED" else ""

    def flow(self, view: str) -> JsonObject:
        return {"why_not": "The picture is in the overview."}

    def state(self) -> JsonObject:
        return {"why_not": "`headrace state` shows the state of a table's flow, in STORAGE/state."}

    def state_of_key(self, operator: str, key: str) -> JsonObject:
        return self.state()

    def dead_letters(self) -> JsonObject:
        return {"why_not": "Rows that expectations drop are in a table of their own."}

    # -- rows -------------------------------------------------------------------------------------------

    def rows(self, view: str, search: str, offset: int) -> JsonObject:
        version = self._stored(view)
        return {
            **_page(
                dict(zip(version.columns, version.numbers, strict=True)),
                version.page(search[:MAX_SEARCH], offset),
                askable=True,
            ),
            "total": version.entry.rows,
        }

    def _stored(self, view: str) -> StoredVersion:
        """Return the published version of a table. Raises `UnreadableSource`."""
        state = self._state
        for name in state.with_rows():
            if str(name) == view:
                return StoredVersion(self._spec.storage, name, state.entries[name], LIMIT)
        raise UnreadableSource(
            "there is no such table, or it has no rows yet", fix="choose another one", source=view[:200]
        )

    def why(self, view: str, row: str) -> JsonObject:
        self._stored(view)
        state = self._state
        if state.kept is None:
            return {"why_not": f"The analysis of the project is needed, and {state.note}. Run the pipeline."}
        return self._find_why(view, row)

    # -- runs -------------------------------------------------------------------------------------------

    def runs(self, view: str, run: int) -> JsonObject:
        """Return the records of a table, of a run, or (with neither) of the last runs; the newest first."""
        state = self._state
        records, labels = state.records, state.labels(self._spec.database)
        if view or run:
            listed = [
                each
                for each in records
                if (not view or each.table_name == view) and (not run or each.run == run)
            ]
            return {"records": [self._record(each, state, labels) for each in reversed(listed)]}
        tables: dict[int, list[EventRecord]] = {}
        for each in records:
            if each.kind != RUN:
                tables.setdefault(each.run, []).append(each)
        ends = {each.run: each for each in records if each.kind == RUN}
        running = running_since(self._spec.storage, records)
        return {
            "records": [
                {**self._record(_ended(end, running), state, labels), **_summary(tables.get(number, []))}
                for number, end in sorted(ends.items(), reverse=True)
            ]
        }

    def _record(self, record: EventRecord, state: PageState, labels: Mapping[TableName, str]) -> JsonObject:
        name = next((t.name for t in state.tables if str(t.name) == record.table_name), None)
        return {
            **asdict(record),
            "at": record.seconds_since_epoch,
            "label": record.table_name if name is None else labels[name],
            "comparable": name is not None and name in state.entries and self._is_comparable(name, record),
        }

    def _is_comparable(self, name: TableName, record: EventRecord) -> bool:
        """Return whether what a run has changed in a table can still be found."""
        before, after = record.version_before, record.version_after
        if record.kind != TABLE or not before or before == after:
            return False
        rows = PipelineCatalog.rows_in(self._spec.storage, name)
        return rows.folder(before).is_dir() and rows.folder(after).is_dir()

    def changes(self, view: str, run: int, search: str, offset: int) -> JsonObject:
        """Return a page of the rows that a run inserted into a table and deleted from it."""
        version = self._stored(view)
        record = next(
            (
                each
                for each in self._state.records
                if (each.kind, each.table_name, each.run) == (TABLE, view, run)
            ),
            None,
        )
        if record is None:
            return {"why_not": f"Run {run} has no record of this table."}
        if record.version_before == record.version_after:
            failed = {"FAILED": ": it failed", "SKIPPED": ": it was skipped"}.get(record.state, "")
            return {"why_not": f"Run {run} changed nothing in this table{failed}."}
        if not record.version_before:
            return {"why_not": f"Run {run} made the first version: all of its rows were new."}
        compared = self._changes(version, record)
        columns = {name: kind for name, kind in compared.columns.items() if name != WEIGHT}
        altered = ", ".join(f"column {name} {what}" for name, what in compared.altered.items())
        return {
            **_page(columns, page_of(compared.rows, search[:MAX_SEARCH], offset), askable=False),
            "limit": altered,
            "total": len(compared.rows),
            "inserted": record.rows_inserted,
            "deleted": record.rows_deleted,
        }

    def _changes(self, version: StoredVersion, record: EventRecord) -> _Compared:
        """Compare the versions of a table before and after a run.

        The last result is kept, since one looks at several pages of it.
        """
        key = (version.name, record.version_before, record.version_after)
        with self._comparing:
            if self._compared is None or self._compared.key != key:
                self._compared = None
                self._compared = self._compare(key, version, record)
            return self._compared

    def _compare(self, key: Any, version: StoredVersion, record: EventRecord) -> _Compared:
        made = replace(version, entry=replace(version.entry, version=record.version_after))
        kept = made.kept_changes(record.version_before)
        if kept is not None:
            return _Compared(key, kept)
        found: Any = diff_table(
            self._spec, str(version.name), before=record.run - 1, after=record.run, limit=LIMIT
        )
        return _Compared(key, found.changes, found.columns)


@dataclass(frozen=True, slots=True)
class _Compared:
    """Rows by which two versions of a table differ. altered: columns that do, with what became of each."""

    key: Any
    rows: Any
    altered: Mapping[str, str] = field(default_factory=dict[str, str])

    @property
    def columns(self) -> Mapping[str, bool]:
        """Names of the columns, and whether they are numeric."""
        return {each.name: is_number(each.type) for each in self.rows.schema}


def _label(name: TableName, database: str) -> str:
    return name.table if name.database == database else f"{name.database}.{name.table}"


def _is_of_project(table: KnownTable) -> bool:
    """Return whether a table is one that the project defines, and not beside one or added by runs."""
    return table.beside is None and not table.name.is_hidden


def _label_of(table: KnownTable, database: str) -> str:
    if table.name.is_hidden:
        return table.title.replace(f"{CATALOG}.{database}.", "")
    if table.beside is None:
        return _label(table.name, database)
    rows = "dropped rows" if table.name == table.beside.beside(DROPPED) else "violations"
    return f"{_label(table.beside, database)}: {rows}"


def _described(table: KnownTable, label: str, entries: Mapping[TableName, TableEntry]) -> JsonObject:
    dropped = table.name.beside(DROPPED)
    return {
        "name": str(table.name),
        "label": label,
        "title": table.title,
        "kind": table.kind,
        "method": table.method,
        "why": table.why,
        "where": table.where,
        "defined": table.defined,
        "beside": None if table.beside is None else str(table.beside),
        "dropped": str(dropped) if dropped in entries else None,
        "reads": [str(each.table or each.key) for each in table.inputs],
    }


def _drawn(table: KnownTable, database: str) -> DrawnTable:
    called = table.kind if table.kind == "shared part" else _label_of(table, database)
    inputs = tuple(
        DrawnInput(each.table or each.key, _short(each.key), each.streaming) for each in table.inputs
    )
    # Its last line gets the freshness, which the page writes below the box.
    shape = shape_of_table(table.kind, table.method)
    return DrawnTable(table.name, (called, table.method or table.kind), shape, inputs)


def _short(key: str) -> str:
    """Return the last part of the path that an input's key names."""
    if "files " in key or "Delta table " in key:
        return ", ".join(part.removesuffix("/*").rpartition("/")[2] for part in key.split(", "))
    return "constants" if key.startswith(("rows ", "range ")) else key


def _status(status: TableStatus, database: str) -> JsonObject:
    last, failure, entry = status.last, status.failure, status.entry
    counts = {each["name"]: each for each in (last.expectations if last else ())}
    return {
        "name": str(status.table.name),
        "health": status.health.value,
        "updated": status.updated,
        "changed": status.changed,
        "rows": entry.rows if entry and entry.layout != SINK else None,
        "version": entry.version if entry else None,
        "news": [
            {
                "label": _label(each.table, database) if each.table else _short(each.key),
                "text": status.news[each.key],
            }
            for each in status.table.inputs
            if status.news.get(each.key, "") != ""
        ],
        "redefined": status.is_redefined,
        "run": last.run if last else None,
        "method": last.method if last else "",
        "reason": last.reason if last else "",
        "failure": None if failure is None else _failed(failure),
        "expectations": [
            {
                **asdict(each),
                "came": counts.get(each.name),
                "total": status.totals[each.name]._asdict() if each.name in status.totals else None,
            }
            for each in status.table.expectations
        ],
    }


def _failed(record: EventRecord) -> JsonObject:
    return {
        "run": record.run,
        "at": record.seconds_since_epoch,
        "state": record.state,
        "code": record.error_code,
        "error": record.error,
    }


def _first_line(status: TableStatus, database: str) -> str:
    assert status.failure is not None
    said = status.failure.error.partition("\n")[0] or status.failure.error_code
    return f"{_label(status.table.name, database)}: {said}"


def _ended(record: EventRecord, running: EventRecord | None) -> EventRecord:
    """Return the last record of a run; one that has not ended, and is not at work, has died."""
    died = record.state == RUNNING and (running is None or running.run != record.run)
    return replace(record, state="DIED") if died else record


def _summary(records: Sequence[EventRecord]) -> JsonObject:
    return {
        "tables": sum(each.kind == TABLE for each in records),
        "part_cpu_seconds": round(
            sum(each.cpu_seconds + each.spark_cpu_seconds for each in records if each.kind == PART), 4
        ),
        "changed": sum(each.version_after != each.version_before for each in records if each.kind == TABLE),
        "failed": sum(each.state == "FAILED" for each in records),
    }


# --- pages of rows as JSON ------------------------------------------------------------------------


_NUMBER = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")


def _page(shown: Mapping[str, bool], page: RowPage, *, askable: bool) -> JsonObject:
    """Return a page of rows. shown: names of the columns, and whether they are numeric."""
    columns, numbers = list(shown), list(shown.values())
    searched = "" if page.searched is None else f"only the first {page.searched:,} rows were searched"
    return {
        "columns": columns,
        "numbers": numbers,
        "rows": [
            {
                "values": list(row.values),
                "json": _askable(row_json(columns, numbers, row.values)) if askable and row.whole else None,
                "weight": row.weight,
                "tick": None,
            }
            for row in page.rows
        ],
        "more": page.more,
        "following": page.following,
        "changes": None,
        "overflow": "",
        "limit": searched,
    }


def _askable(text: str) -> str | None:
    """Return a row as a question, which travels in an address; None for one that is too long."""
    return text if len(text) <= MAX_ASKED and len(quote(text)) <= MAX_ASKED else None


def row_json(columns: Sequence[str], numbers: Sequence[bool], values: Sequence[str | None]) -> str:
    """Return a row of texts as a JSON object, with numbers as such.

    >>> row_json(["city", "cents"], [False, True], ["bath", "12.50"])
    '{"city": "bath", "cents": 12.50}'
    """
    parts = [
        f"{json.dumps(name, ensure_ascii=False)}: "
        + (
            value
            if value is not None and number and _NUMBER.fullmatch(value)
            else json.dumps(value, ensure_ascii=False)
        )
        for name, number, value in zip(columns, numbers, values, strict=True)
    ]
    return "{" + ", ".join(parts) + "}"
