"""Earlier runs of a pipeline whose tables are kept, for diff and rollback.

A run publishes a catalogue if a table has changed. A run that did not publish left the tables as the one
before it did, so its number stands for that one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.pipelines.catalog import PipelineCatalog, PublishedRun, TableEntry
from headrace.pipelines.definitions import TableName, parse_table_name
from headrace.pipelines.errors import RunNotKept, UnknownDataset
from headrace.pipelines.event_log import EventLog
from headrace.pipelines.spec import VERSION_RETENTION

if TYPE_CHECKING:
    from headrace.pipelines.spec import PipelineSpec


@dataclass(frozen=True, slots=True)
class KeptRun:
    """A kept run as listed. changed: its tables that differ from the kept run before; None for the oldest."""

    number: int
    at: datetime
    tables: int
    rows: int
    changed: Sequence[TableName] | None


def kept_runs(spec: PipelineSpec) -> list[KeptRun]:
    """List the runs whose tables are kept, the last one at the end. Raises `CatalogDamaged`."""
    found: list[KeptRun] = []
    before: Mapping[TableName, TableEntry] | None = None
    for run in PipelineCatalog.published_runs(spec.storage):
        tables = {name: entry for name, entry in run.tables.items() if not name.is_hidden}
        changed = None if before is None else sorted(_changed(before, tables))
        rows = sum(entry.rows for entry in tables.values())
        found.append(KeptRun(run.number, run.at, len(tables), rows, changed))
        before = tables
    return found


def _changed(before: Mapping[TableName, TableEntry], now: Mapping[TableName, TableEntry]) -> set[TableName]:
    def version(of: Mapping[TableName, TableEntry], name: TableName) -> int:
        return of[name].version if name in of else 0

    return {name for name in {*before, *now} if version(before, name) != version(now, name)}


def find_run(runs: Sequence[PublishedRun], number: int, storage: Path) -> PublishedRun:
    """Return the run that left the tables as they were after a run. Raises `RunNotKept`.

    runs: those whose tables are kept.
    """
    found = [run for run in runs if run.number <= number]
    if found and (number <= runs[-1].number or number <= _last_recorded(storage)):
        return found[-1]
    numbers = [run.number for run in runs]
    later = bool(runs) and number > runs[-1].number
    raise RunNotKept(
        f"there was no run {number} yet" if later else f"the tables of run {number} are not kept",
        why=f"Kept are the tables after {'run' if len(numbers) == 1 else 'the runs'} {_listed(numbers)}."
        if numbers
        else "No run has published tables yet.",
        fix="give one of these runs; `headrace pipeline runs` lists them with their times"
        + (
            ""
            if later
            else f".\nTo keep more from now on, in the spec's configuration: {VERSION_RETENTION}: 30 runs"
        )
        if numbers
        else "headrace pipeline run",
        run=number,
        kept=tuple(numbers),
    )


def _last_recorded(storage: Path) -> int:
    """Return the number of the last run in the event log, which may have published nothing; 0 if none is."""
    return next((each.run for each in EventLog(storage).newest_first()), 0)


def _listed(numbers: Sequence[int]) -> str:
    return str(numbers[0]) if len(numbers) == 1 else f"{', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"


def find_stored_table(text: str, database: str, known: Iterable[TableName]) -> TableName:
    """Return the table of a name, regardless of case. Raises `UnknownDataset`."""
    names = sorted(known)
    wanted = parse_table_name(text, database).folded
    for name in names:
        if name.folded == wanted:
            return name
    raise UnknownDataset(
        f"the storage has no table {text!r}",
        fix=f"give one of: {', '.join(map(str, names)) or 'there is none yet'}",
        dataset=text,
    )
