"""Rollback of a pipeline to an earlier run: all tables as that run left them, published as a new run.

The history stays. Rows and changes get new version numbers, and the positions of their readers the same, so
that no number ever stands for two contents. State is a fork of the table's checkpoint at the tick of that
run; where it is no longer kept, the next run makes the table from all rows. Positions in inputs outside are
those of that run, so the next run reads what has changed in them since.

All is made beside what is there, and published by one rename like any run. Deliveries follow in the next run,
which compares them with the restored rows; sinks cannot take rows back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import CheckpointDamaged
from headrace.file_system import take_over_folder
from headrace.pipelines.catalog import (
    DELIVERY,
    SINK,
    PipelineCatalog,
    Position,
    PublishedRun,
    TableEntry,
    TableState,
    oldest_versions_read,
    without_deliveries,
)
from headrace.pipelines.definitions import TableName
from headrace.pipelines.errors import CatalogDamaged
from headrace.pipelines.pipeline_run import RunReport
from headrace.pipelines.run_history import find_run
from headrace.pipelines.run_recorder import recording
from headrace.state.rewind import fork
from headrace.tables.version_folders import VersionFolders

if TYPE_CHECKING:
    from headrace.pipelines.spec import PipelineSpec


@dataclass(frozen=True, slots=True)
class RolledBack:
    """Outcome of a rollback. Hidden tables are left out.

    run:      whose tables are restored. published: number of the run that did it; None if nothing differed.
    restored: tables that another version has been published of.
    rebuilt:  tables whose state is not kept, which the next run makes from all rows.
    removed:  tables that were not there yet, which the next run makes if the project defines them.
    dropped:  tables that were there then, and have been dropped since.
    sinks, delivered: those that keep what they were given, and those that the next run brings in line.
    """

    run: int
    published: int | None
    restored: Sequence[TableName] = ()
    rebuilt: Sequence[TableName] = ()
    removed: Sequence[TableName] = ()
    dropped: Sequence[TableName] = ()
    sinks: Sequence[TableName] = ()
    delivered: Sequence[TableName] = ()


def rollback(spec: PipelineSpec, number: int) -> RolledBack:
    """Publish all tables as they were after an earlier run.

    Raises `RunNotKept`, `PipelineInUse` and `CatalogDamaged`; all tables stay as they are then.
    """
    with PipelineCatalog.open(spec.storage, spec.version_retention) as catalog:
        to = find_run(PipelineCatalog.published_runs(spec.storage), number, spec.storage)
        if to.tables == catalog.published == catalog.entries:
            return RolledBack(to.number, None)
        with recording(spec, catalog, lambda event: None) as recorder:
            before, restoration = dict(catalog.published), _Restoration(catalog, to)
            entries = restoration.entries()
            catalog.commit(entries, entries)
            for name, entry in entries.items():
                recorder.restored(name, before.get(name), entry, f"as after run {to.number}")
            recorder.end(RunReport({}))
        return restoration.outcome(before, entries)


@dataclass(frozen=True, slots=True)
class _Restoration:
    """Restoration of the tables of an earlier run, beside those that are there."""

    catalog: PipelineCatalog
    to: PublishedRun

    @property
    def _tables(self) -> Mapping[TableName, TableEntry]:
        """Tables to restore: those that were dropped since stay so. Raises `CatalogDamaged`."""
        return {name: entry for name, entry in self.to.tables.items() if not self._is_dropped(name, entry)}

    def _is_dropped(self, name: TableName, entry: TableEntry) -> bool:
        folder = self.catalog.rows(name).folder(entry.version)
        if entry.layout == SINK or folder.is_dir():
            return False
        if name not in self.catalog.entries:
            return True
        raise CatalogDamaged(
            f"the rows of {name} after run {self.to.number} are missing",
            why=f"They were in {folder}.",
            fix="restore the storage from a backup, or go back to another run: headrace pipeline runs",
            file=str(folder),
        )

    def entries(self) -> dict[TableName, TableEntry]:
        """Make the versions and states; return the entries to publish."""
        tables = self._tables
        read = oldest_versions_read(without_deliveries(tables).values())
        shifts = dict[str, int]()
        for name, entry in tables.items():
            shift = self._renumber(name, entry, min(read.get(key, entry.version) for key in name.keys))
            shifts |= dict.fromkeys(name.keys, shift)
        return {
            name: self._with_state(
                name,
                replace(
                    entry,
                    version=entry.version + shifts[name.keys[0]],
                    positions={flow: _shifted(each, shifts) for flow, each in entry.positions.items()},
                ),
            )
            for name, entry in tables.items()
        }

    def _renumber(self, name: TableName, entry: TableEntry, oldest: int) -> int:
        """Give a table's version a new number, and so the changes that readers had not read yet.

        oldest: version that one of them had read up to. Return by how much the numbers grow.
        """
        last = self.catalog.last_version(name)
        if entry.layout == SINK or entry.version == last:
            return 0
        shift = last + 1 - oldest
        _share(self.catalog.rows(name), entry.version, entry.version + shift)
        for version in range(oldest + 1, entry.version + 1):
            # What is not kept is not known then either: readers compare rows, or are made from all rows.
            _share(self.catalog.changes(name), version, version + shift)
        return shift

    def _with_state(self, name: TableName, entry: TableEntry) -> TableEntry:
        """Return an entry with the state of its tick, or with none if that is not kept."""
        if not entry.generation:
            return entry
        states, now = self.catalog.states(self.catalog.storage, name), self.catalog.entries.get(name)
        state = TableState(states.folder(entry.generation))
        if now is not None and now.generation == entry.generation and state.last_tick == entry.tick:
            return entry
        generation = self.catalog.new_generation(name)
        forked = TableState(states.stage(generation))
        try:
            kept = fork(state.checkpoint, entry.tick, forked.checkpoint)
        except (CheckpointDamaged, FileNotFoundError):
            kept = False
        if not kept:
            return replace(entry, generation=0, tick=0)
        forked.sink.mkdir()  # What it gave out is in the rows.
        states.publish(generation, forked.folder)
        return replace(entry, generation=generation)

    def outcome(
        self, before: Mapping[TableName, TableEntry], entries: Mapping[TableName, TableEntry]
    ) -> RolledBack:
        """Describe what was restored, and what is left to the next run."""
        shown = sorted(name for name in {*before, *self.to.tables} if not name.is_hidden)
        now = [(name, entries[name]) for name in shown if name in entries]
        changed = [name for name, entry in now if name not in before or before[name].version != entry.version]
        return RolledBack(
            self.to.number,
            self.catalog.number,
            restored=[name for name in changed if entries[name].layout != SINK],
            rebuilt=[name for name, entry in now if self.to.tables[name].generation and not entry.generation],
            removed=[name for name in shown if name not in self.to.tables],
            dropped=[name for name in shown if name in self.to.tables and name not in entries],
            sinks=[name for name in changed if entries[name].layout == SINK],
            delivered=[name for name in changed if DELIVERY in entries[name].positions],
        )


def _share(versions: VersionFolders, old: int, new: int) -> None:
    """Give the files of a version a second number, if it is there."""
    folder = versions.folder(old)
    if folder.is_dir():
        staged = versions.stage(new)
        staged.mkdir()
        take_over_folder(Path(folder), staged)
        versions.publish(new, staged)


def _shifted(positions: Mapping[str, Position], shifts: Mapping[str, int]) -> dict[str, Position]:
    return {
        key: position + shifts.get(key, 0) if isinstance(position, int) else position
        for key, position in positions.items()
    }
