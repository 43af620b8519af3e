"""Status of a pipeline's tables, from its storage alone: without Spark, and without running anything.

The kept analysis says what there is and how it is kept up to date. Where none holds, what the last run has
recorded takes its place: the catalogue, and the event log. Whether inputs have news is found by a look at
their files, as the first step of a run does it.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.catalog import SINK, PipelineCatalog, Position, TableEntry, expectation_totals
from headrace.pipelines.definitions import SHARED, SNAPSHOTS, TableName
from headrace.pipelines.event_log import PART, RUN, RUNNING, TABLE, EventRecord
from headrace.pipelines.file_listing import files_in
from headrace.pipelines.input_identity import FileMark, InputContents
from headrace.pipelines.leaves import FilesLeaf, Leaf, TableLeaf
from headrace.pipelines.watch import places_of

if TYPE_CHECKING:
    from headrace.pipelines.expectations import ExpectationCounts
    from headrace.pipelines.kept_analysis import KeptAnalysis

MAX_LISTED = 50_000
"""Files of an input beyond which a look at them is not cheap."""


# --- what there is --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KnownInput:
    """Input of a table. key: in positions. table: of the pipeline, if it is one. leaf: if one is kept."""

    key: str
    streaming: bool
    table: TableName | None = None
    leaf: Leaf | None = None


@dataclass(frozen=True, slots=True)
class KnownExpectation:
    """Expectation on a table. condition, action: empty if only its name is known."""

    name: str
    condition: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class KnownTable:
    """Table of a pipeline, as far as it is known.

    title: shown to users. kind: of the dataset.
    method, why: how it is kept up to date, and why not otherwise, as the analysis says.
    where: of its definition. fingerprint: of its query; None if not known.
    defined: whether the project defines it. beside: the table whose dropped rows or violations it holds.
    """

    name: TableName
    title: str
    kind: str
    method: str
    why: str = ""
    where: str = ""
    inputs: tuple[KnownInput, ...] = ()
    expectations: tuple[KnownExpectation, ...] = ()
    fingerprint: str | None = None
    defined: bool = True
    beside: TableName | None = None


def known_tables(
    kept: KeptAnalysis | None, entries: Mapping[TableName, TableEntry], records: Sequence[EventRecord]
) -> list[KnownTable]:
    """Return the tables of a pipeline, each after those that it reads, then those no longer defined.

    kept: analysis of the project; without one, entries and records of runs tell what they can.
    """
    if kept is None:
        return _in_order([_of_entry(name, entries, records) for name in entries])
    found = [_of_analysis(kept, name) for name in (table.name for table in kept.graph.tables)]
    there = {each.name for each in found}
    others = (_of_entry(name, entries, records) for name in entries if name not in there)
    return found + [replace(each, defined=each.name.is_hidden) for each in others]


def _of_analysis(kept: KeptAnalysis, name: TableName) -> KnownTable:
    table, plan = kept.graph.table(name), kept.plans[name]
    leaves = {leaf.key: leaf for query in table.queries for leaf in query.leaves}
    return KnownTable(
        name,
        table.dataset.title,
        table.dataset.kind.value,
        plan.method.value,
        plan.why,
        str(table.dataset.location),
        tuple(
            KnownInput(key, leaf.streaming, leaf.name if isinstance(leaf, TableLeaf) else None, leaf)
            for key, leaf in leaves.items()
        ),
        tuple(
            KnownExpectation(each.name, each.text, each.on_violation.value)
            for each in table.dataset.expectations
        ),
        plan.fingerprint,
        beside=table.dataset.beside,
    )


def _of_entry(
    name: TableName, entries: Mapping[TableName, TableEntry], records: Sequence[EventRecord]
) -> KnownTable:
    entry = entries[name]
    last = next((each for each in reversed(records) if each.table_name == str(name) and each.method), None)
    keys = {key for positions in entry.positions.values() for key in positions}
    owner = name.owner
    return KnownTable(
        name,
        str(name),
        _kind_of(name, entry),
        last.method if last else "",
        inputs=tuple(_input_of(key, entries) for key in sorted(keys)),
        expectations=tuple(KnownExpectation(each["name"]) for each in (last.expectations if last else ())),
        beside=owner if owner != name else None,
    )


def _kind_of(name: TableName, entry: TableEntry) -> str:
    if name.is_hidden:
        return "snapshot" if name.database == SNAPSHOTS else "shared part"
    if name.database == SHARED:
        return "shared part"
    return "sink" if entry.layout == SINK else "table"


def _input_of(key: str, entries: Iterable[TableName]) -> KnownInput:
    # A query that reads a table in two ways has a number at the end of the second key.
    keys = {key, re.sub(r" \(\d+\)$", "", key)}
    table = next((name for name in entries if keys & {*name.keys}), None)
    return KnownInput(key, key.startswith("stream "), table)


def _in_order(tables: Sequence[KnownTable]) -> list[KnownTable]:
    """Return tables after those that they read."""
    found: dict[TableName, KnownTable] = {}
    waiting = {table.name: table for table in sorted(tables, key=lambda each: each.name)}
    while waiting:
        ready = [t for t in waiting.values() if not any(each.table in waiting for each in t.inputs)]
        for table in ready or [*waiting.values()]:
            found[table.name] = waiting.pop(table.name)
    return [*found.values()]


# --- how they are ---------------------------------------------------------------------------------


class Health(Enum):
    """Health of a table. The value is shown to users."""

    FRESH = "up to date"
    STALE = "inputs have news"
    BEHIND = "upstream is not up to date"
    FAILED = "failed"
    SKIPPED = "skipped"
    RUNNING = "queued or running"
    ABSENT = "not there yet"


@dataclass(frozen=True, slots=True)
class TableStatus:
    """Status of a table.

    last:      its last record that is complete. failure: a later one of a failure, if that is the last.
    updated, changed: when it was last brought up to date, and last changed, in seconds; None if not known.
    news:      of its inputs, by their keys; None where only a run can tell.
    totals:    counts of all rows by expectation.
    """

    table: KnownTable
    health: Health
    entry: TableEntry | None = None
    last: EventRecord | None = None
    failure: EventRecord | None = None
    updated: float | None = None
    changed: float | None = None
    news: Mapping[str, str | None] = field(default_factory=dict[str, "str | None"])
    totals: Mapping[str, ExpectationCounts] = field(default_factory=dict[str, "ExpectationCounts"])

    @property
    def is_redefined(self) -> bool:
        """Whether its query has changed since its rows were made."""
        known = self.entry is not None and self.table.fingerprint is not None
        return known and self.entry is not None and self.entry.fingerprint != self.table.fingerprint


def table_statuses(
    storage: Path,
    tables: Iterable[KnownTable],
    entries: Mapping[TableName, TableEntry],
    records: Sequence[EventRecord],
) -> list[TableStatus]:
    """Return the status of each table.

    tables:  each after those that it reads. records: of the last runs, oldest first.
    """
    look = InputLook(InputContents.open(storage))
    by_table: dict[str, list[EventRecord]] = {}
    for each in records:
        if each.kind in (TABLE, PART):
            by_table.setdefault(each.table_name, []).append(each)
    running = running_since(storage, records)
    found: dict[TableName, TableStatus] = {}
    for table in tables:
        status = _status(storage, table, entries, by_table.get(str(table.name), []), look, running)
        above = (found[each.table].health for each in table.inputs if each.table in found)
        if status.health is Health.FRESH and not {Health.FRESH, Health.RUNNING}.issuperset(above):
            status = replace(status, health=Health.BEHIND)
        found[table.name] = status
    return [*found.values()]


def _status(
    storage: Path,
    table: KnownTable,
    entries: Mapping[TableName, TableEntry],
    records: Sequence[EventRecord],
    look: InputLook,
    running: EventRecord | None,
) -> TableStatus:
    entry = entries.get(table.name)
    done = [each for each in records if each.state == "COMPLETED"]
    last = done[-1] if done else None
    failure = records[-1] if records and records[-1].state != "COMPLETED" else None
    changes = [each for each in done if each.version_after != each.version_before]
    news = {each.key: news_of(each, entry, entries, look) for each in table.inputs} if entry else {}
    names = [each.name for each in table.expectations]
    status = TableStatus(
        table,
        Health.FRESH,
        entry,
        last,
        failure,
        last.seconds_since_epoch if last else None,
        changes[-1].seconds_since_epoch if changes else _written(storage, table.name, entry),
        news,
        expectation_totals(table.name, names, entries) if names and entry else {},
    )
    return replace(status, health=_health(status, running))


def _health(status: TableStatus, running: EventRecord | None) -> Health:
    last = status.failure or status.last
    if running is not None and status.table.defined and (last is None or last.run != running.run):
        return Health.RUNNING
    if status.failure is not None:
        return Health.SKIPPED if status.failure.state == "SKIPPED" else Health.FAILED
    if status.entry is None:
        return Health.ABSENT
    return Health.STALE if any(status.news.values()) or status.is_redefined else Health.FRESH


def _written(storage: Path, name: TableName, entry: TableEntry | None) -> float | None:
    """Return when the last version of a table was written."""
    if entry is None:
        return None
    with suppress(OSError):
        return PipelineCatalog.rows_in(storage, name).folder(entry.version).stat().st_mtime
    return None


def running_since(storage: Path, records: Sequence[EventRecord]) -> EventRecord | None:
    """Return the first record of a run at work; None if there is none, or it has died."""
    runs = [each for each in records if each.kind == RUN]
    if not runs or runs[-1].state != RUNNING:
        return None
    with suppress(OSError, ValueError, KeyError, TypeError):
        holder = json.loads((storage / "catalog/lease/lock").read_bytes()[:1000])
        if holder["host"] == socket.gethostname() and not _is_alive(int(holder["process"])):
            return None
    return runs[-1]


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # of another user
        return True
    return True


# --- news of inputs -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class InputLook:
    """One look at the inputs of a pipeline, which lists each folder once however many tables read it."""

    contents: InputContents
    _listed: dict[tuple[str, bool], Mapping[str, FileMark]] = field(
        default_factory=dict[tuple[str, bool], "Mapping[str, FileMark]"]
    )

    def files_in(self, folder: str, *, recursive: bool = False) -> Mapping[str, FileMark]:
        """Return the files of a folder with their marks: of many, one more than `MAX_LISTED`."""
        if (folder, recursive) not in self._listed:
            found: dict[str, FileMark] = {}
            with suppress(OSError):  # What cannot be listed is for a run to find.
                listed = files_in(folder, lambda entry: None, recursive=recursive)
                found.update(islice(listed, MAX_LISTED + 1))
            self._listed[folder, recursive] = found
        return self._listed[folder, recursive]


def news_of(
    given: KnownInput,
    entry: TableEntry,
    entries: Mapping[TableName, TableEntry],
    look: InputLook,
) -> str | None:
    """Return what an input has that a table has not read; empty for nothing, None where a run has to tell."""
    found = [positions[given.key] for positions in entry.positions.values() if given.key in positions]
    if not found:
        return "never read"
    position = found[0]
    if given.table is not None:
        there = entries.get(given.table)
        count = there.version - position if there and isinstance(position, int) else 0
        return counted(count, "newer version") if count > 0 else ""
    if isinstance(position, dict):
        return _news_of_files(given, position, look)
    return _news_of_delta(given.key, position)


def _news_of_files(given: KnownInput, position: Mapping[str, list[int]], look: InputLook) -> str | None:
    found: dict[str, list[int]] = {}
    leaf = given.leaf
    for place in places_of(given.key):
        found |= look.files_in(place, recursive=isinstance(leaf, FilesLeaf) and leaf.is_recursive)
    if len(found) > MAX_LISTED:
        return None
    changed = gone = 0
    for path, mark in position.items():
        if given.streaming:
            continue  # A stream reads no file twice.
        gone += path not in found and not os.path.exists(path)
        changed += path in found and not look.contents.is_current(path, mark)
    new = len(found.keys() - position.keys())
    # Of a pattern, only a run finds which files it names.
    is_pattern = given.key.endswith(f"{os.sep}*") or (
        isinstance(leaf, FilesLeaf) and ("pattern" in leaf.elsewhere or leaf.chosen)
    )
    parts = [
        counted(new, "new file") if new and not is_pattern else "",
        counted(changed, "changed file") if changed else "",
        f"{counted(gone, 'file')} gone" if gone else "",
    ]
    said = ", ".join(filter(None, parts))
    return None if new and is_pattern and not said else said


_COMMIT = re.compile(r"(\d{20})\.json")


def _news_of_delta(key: str, position: Position | None) -> str | None:
    from headrace.pipelines.leaves import delta_path_of

    path = delta_path_of(key)
    read = re.match(r"(\d+) of ", str(position))
    if path is None or read is None:
        return "" if ", version " in key else None
    try:
        numbers = [
            int(f[1]) for name in os.listdir(Path(path, "_delta_log")) if (f := _COMMIT.fullmatch(name))
        ]
    except OSError:
        return None
    count = max(numbers, default=0) - int(read[1])
    return counted(count, "newer version") if count > 0 else ""


def counted(count: int, one: str) -> str:
    """Return a number with its noun.

    >>> counted(2, "new file")
    '2 new files'
    """
    return f"{count:,} {one}{'' if count == 1 else 's'}"
