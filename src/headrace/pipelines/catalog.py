"""Durable catalogue of a pipeline's tables: the last published run, and the progress of an unfinished one.

    <storage>/catalog/current                   link to the catalogue of the last run that ended
    <storage>/catalog/unpublished.json          the tables of a run that has not ended, as far as it came
    <storage>/catalog/id                        what tells this catalogue from one that is made anew
    <storage>/catalog/<run>/catalog.json        each table: version, state, how far its inputs were read
    <storage>/catalog/<run>/<database>/<table>  link to the rows of the table, a folder of files
    <storage>/tables/<database>/<table>/<version>   the rows of a version
    <storage>/changes/<database>/<table>/<version>  what changed from the version before, with weights
    <storage>/state/<database>/<table>/<generation> state of an incremental table
    <storage>/inputs                            contents of input files (`input_identity`)
    <storage>/events                            records of runs (`event_log`)
    <storage>/delta/<database>/<table>          Delta table to which versions are delivered
    <storage>/changelog/<database>/<table>      changelog to which versions are delivered

Nothing that a catalogue names is changed afterwards. A run makes versions beside those that are there, and a
catalogue that names them; `current` then moves by one rename, and with it all tables. A run that dies before
has changed nothing but the state of tables, which is ahead then: the next run takes up its changes.

Catalogues of earlier runs are kept as long as the project's retention says, with all that a rollback needs:
rows, states as of their ticks, and contents of input files. Numbers of versions and of states are never given
twice, so a number in a kept catalogue means the same for ever.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias
from uuid import uuid4

from headrace.errors import CheckpointDamaged, CheckpointInUse
from headrace.file_system import (
    identity_of,
    remove_empty,
    remove_folder,
    subfolder_for,
    sync_folder,
    write_file,
)
from headrace.pipelines.definitions import DROPPED, RESERVED, TableName
from headrace.pipelines.errors import CatalogDamaged, PipelineInUse
from headrace.pipelines.event_log import Retention
from headrace.pipelines.expectations import ExpectationCounts
from headrace.state.commit import CommitLog, Lease, read_checked, write_checked
from headrace.tables.version_folders import VersionFolders, tick_folders

Position: TypeAlias = int | str | dict[str, list[int]]
"""Position in an input that was read: version of a table, files of a folder, or text of constants."""

Positions: TypeAlias = Mapping[str, Position | None]
"""Positions of the inputs of a query, by their keys; None where an input has none."""

_FILE = "catalog.json"
SINK = "sink"
"""Layout of what has no rows of its own."""

DELIVERY = f"{RESERVED}delivery"
"""Flow by whose position a delivery is behind its table."""

_CURRENT = "current"
_UNPUBLISHED = "unpublished.json"
_KEPT = 2
"""Catalogues whose rows are always kept: that of the last run, and the one before, for readers at work."""


@dataclass(frozen=True, slots=True)
class TableEntry:
    """Catalogue record of a table's last version.

    version:     of its rows. rows: their number.
    schema:      JSON of its columns. layout: format of its files, and what they are partitioned by.
    fingerprint: of what was computed.
    generation:  of its state; 0 without one. tick: of the state, whose changes are in the version.
    positions:   of its flows, by name: how far each input was read, by its key.
    costs:       what its last updates took (`costs.Costs`).
    parts:       of what the fingerprint was made (`table_fingerprints`).
    failed:      of dropped rows and violations, their number by the expectation that they fail.
    """

    version: int
    rows: int
    schema: str
    layout: str
    fingerprint: str
    generation: int = 0
    tick: int = 0
    positions: Mapping[str, Mapping[str, Position]] = field(default_factory=dict[str, Mapping[str, Position]])
    costs: Mapping[str, list[float]] = field(default_factory=dict[str, list[float]])
    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    failed: Mapping[str, int] = field(default_factory=dict[str, int])


class PipelineCatalog:
    """Catalogue of a storage, opened by one run.

    published: as the last run that ended left them. entries: as far as any run has come. A run that died may
    have committed state that has read a version which it could not publish, so its versions are gone on with.
    run: number of the run that has opened it, of the catalogue that this publishes.
    """

    def __init__(
        self, storage: Path, lease: Lease, retention: Retention | None, read: ReadCatalogues
    ) -> None:
        self.storage = storage
        self._lease = lease
        self._retention = retention
        self._folder = storage / "catalog"
        self._runs = VersionFolders(self._folder)
        self._read_before = read
        self._read_runs: dict[int, _CatalogFile] = {}
        self._current, published, ahead = self._read()
        self.published = dict(published)
        self._gone: dict[TableName, int] = dict(self._of_run(self._current).gone) if self._current else {}
        self.entries = dict(self._unpublished(ahead))
        self.run = 1 + max(self._current, self._runs.latest() or 0)
        self._clean()

    @classmethod
    @contextmanager
    def open(
        cls, storage: Path, retention: Retention | None, read: ReadCatalogues | None = None
    ) -> Iterator[PipelineCatalog]:
        """Open the catalogue of a storage for a run. Raises `PipelineInUse` and `CatalogDamaged`.

        retention: of earlier runs, for diff and rollback; None for the one before, for readers at work.
        read: catalogues of this storage that need not be read again.
        """
        folder = storage / "catalog"
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lease = Lease.take(folder)
        except CheckpointInUse as error:
            raise PipelineInUse(
                f"another run of the pipeline uses {storage}",
                why=error.why,
                fix="wait until it ends",
                storage=str(storage),
            ) from None
        try:
            yield cls(storage, lease, retention, ReadCatalogues() if read is None else read)
        finally:
            lease.release()

    @property
    def identity(self) -> str:
        """Id that qualifies its version numbers, which begin at 1 again in a recreated catalogue."""
        file = self._folder / "id"
        if not file.is_file():
            aside = self._folder / ".id.tmp"
            write_file(aside, uuid4().hex.encode(), durable=True)
            os.replace(aside, file)
            sync_folder(self._folder)
        return file.read_text()

    @property
    def number(self) -> int:
        """Number of the published catalogue; 0 before the first."""
        return self._current

    @staticmethod
    def delivery_folder(storage: Path, delivery: str, name: TableName) -> Path:
        """Folder of the Delta table, or changelog, to which versions of a table are delivered."""
        return storage / delivery / _escaped(name)

    @staticmethod
    def published_folder(storage: Path, name: TableName) -> Path:
        """Path at which readers find the published rows of a table."""
        return storage / "catalog" / _CURRENT / _escaped(name)

    def rows(self, name: TableName) -> VersionFolders:
        """Rows of a table by version."""
        return self.rows_in(self.storage, name)

    @staticmethod
    def rows_in(storage: Path, name: TableName) -> VersionFolders:
        """Rows of a table of a storage, by version."""
        return VersionFolders(storage / "tables" / _escaped(name))

    def changes(self, name: TableName) -> VersionFolders:
        """Weighted changes of a table since the previous version; missing if unknown."""
        return self.changes_in(self.storage, name)

    @staticmethod
    def changes_in(storage: Path, name: TableName) -> VersionFolders:
        """Weighted changes of a table of a storage, by version."""
        return VersionFolders(storage / "changes" / _escaped(name))

    @staticmethod
    def states(storage: Path, name: TableName) -> VersionFolders:
        """State of a table by generation."""
        return VersionFolders(storage / "state" / _escaped(name))

    @staticmethod
    def last_entries(storage: Path) -> Mapping[TableName, TableEntry]:
        """Return the tables of a storage as the last run left them. Raises `CatalogDamaged`."""
        link = storage / "catalog" / _CURRENT
        return _read_file(link / _FILE).tables if link.is_symlink() else {}

    @staticmethod
    def identity_of_last(storage: Path) -> tuple[int, ...] | None:
        """Return the identity of the last run's catalogue; None if there is none."""
        try:
            return identity_of(os.stat(storage / "catalog" / _CURRENT / _FILE))
        except OSError:
            return None

    @staticmethod
    def published_runs(storage: Path) -> list[PublishedRun]:
        """Return the kept runs that have published tables, the last one at the end.

        Raises `CatalogDamaged`.
        """
        runs = VersionFolders(storage / "catalog")
        last = runs.linked(runs.path / _CURRENT) or 0
        files = ((number, runs.folder(number) / _FILE) for number in runs.numbers() if number <= last)
        return [
            PublishedRun(number, _published_at(file), _read_file(file).tables)
            for number, file in files
            if file.is_file()  # A run at work may be removing the oldest ones.
        ]

    def is_read(self, name: TableName, entries: Mapping[TableName, TableEntry] | None = None) -> bool:
        """Return whether a table in the catalogue, perhaps of an earlier project, reads this one.

        entries: as far as the run has come; None: as it has found them.
        """
        # Updates side by side may enter further tables meanwhile.
        readers = list((self.entries if entries is None else entries).values())
        return not oldest_versions_read(readers).keys().isdisjoint(name.keys)

    def new_version(self, name: TableName) -> int:
        """Return a table's next version number, removing leftovers of a crashed run."""
        entry = self.entries.get(name)
        version = 1 + max(entry.version if entry else 0, self._gone.get(name, 0))
        self.rows(name).remove(version)
        self.changes(name).remove(version)
        return version

    def last_version(self, name: TableName) -> int:
        """Return the highest version number that was ever given to a table."""
        return max([each.version for each in self._entries_of(name)] + [self._gone.get(name, 0)])

    def new_generation(self, name: TableName) -> int:
        """Return the number of a table's next state."""
        return 1 + max(
            [each.generation for each in self._entries_of(name)] + self.states(self.storage, name).numbers(),
            default=0,
        )

    def ticks_to_keep(self, name: TableName, generation: int, tick: int) -> int:
        """Return how many ticks the state of a table keeps once the tick is committed, the last included.

        So many are needed to go back to a kept run.
        """
        earlier = (of[name] for of in self._for_rollback() if name in of)
        ticks = [each.tick for each in earlier if each.generation == generation]
        return 1 + tick - min([*ticks, tick])

    def record(self, entries: Mapping[TableName, TableEntry]) -> None:
        """Record the progress of a run, before a table reads another's unpublished version."""
        self._check_lease()
        aside = self._folder / f".{_UNPUBLISHED}.tmp"
        write_checked(aside, {"after": self._current, **_body(entries)}, durable=True)
        os.replace(aside, self._folder / _UNPUBLISHED)

    def commit(
        self, published: Mapping[TableName, TableEntry], entries: Mapping[TableName, TableEntry]
    ) -> None:
        """Publish tables, all at once.

        entries: as far as the run has come, also with tables that it does not publish.

        Raises `PipelineInUse` if another run has taken over.
        """
        run = max(self.run, self._current + 1)
        aside, final = self._runs.stage(run), self._runs.folder(run)
        aside.mkdir()
        ahead = {name: entry for name, entry in entries.items() if published.get(name) != entry}
        gone = {name: self.last_version(name) for name in self._known() - entries.keys()}
        write_checked(aside / _FILE, _body(published, ahead, gone), durable=True)
        for name, entry in published.items():
            if entry.layout == SINK:
                continue
            link = aside / _escaped(name)
            link.parent.mkdir(exist_ok=True)
            rows = self.rows(name).folder(entry.version)
            link.symlink_to(os.path.relpath(rows, final / _escaped(name).parent))
        self._runs.publish(run, aside)
        self._check_lease()
        self._runs.point(self._folder / _CURRENT, run)
        self._current, self.published, self.entries = run, dict(published), dict(entries)
        self._gone = gone
        (self._folder / _UNPUBLISHED).unlink(missing_ok=True)
        self._clean()

    def drop(self, names: Collection[TableName]) -> None:
        """Remove tables with all their stored data. Raises `PipelineInUse` like `commit`."""
        published, entries = (
            {name: entry for name, entry in of.items() if name not in names}
            for of in (self.published, self.entries)
        )
        self.commit(published, entries)
        for name in names:
            for kind in ("tables", "changes", "state", "delta", "changelog"):
                remove_folder(self._of(kind, name))
                remove_empty(self._of(kind, name).parent)

    def drop_earlier_catalogues(self) -> None:
        """Remove the previous catalogue and the versions that only it names, even if readers use them."""
        self._runs.retain({self._current})
        self._clean()

    def drop_changes(self) -> None:
        """Remove the changes between versions. No table may still need them."""
        for name in self.entries:
            remove_folder(self._of("changes", name))

    def _check_lease(self) -> None:
        try:
            self._lease.check()
        except CheckpointInUse as error:
            raise PipelineInUse(
                f"another run of the pipeline has taken over {self.storage}",
                why=error.why,
                fix="let the other run finish",
                storage=str(self.storage),
            ) from None

    def _read(self) -> tuple[int, Mapping[TableName, TableEntry], Mapping[TableName, TableEntry]]:
        """Return the last finished run's number, its published tables, and unpublished progress."""
        link = self._folder / _CURRENT
        if link.exists() and not link.is_symlink():
            raise _damaged(link, "it is not the link to the catalogue of a run.")
        if not link.is_symlink():
            if (last := self._runs.latest()) is None:
                return 0, {}, {}
            # The first run died just before the link was there; or somebody has removed it.
            self._runs.point(link, last)
        run = self._runs.linked(link)
        if run is None:
            raise _damaged(link, f"It links to {os.readlink(link)!r}.")
        return run, self._of_run(run).tables, self._of_run(run).ahead

    def _of_run(self, run: int) -> _CatalogFile:
        if run not in self._read_runs:
            self._read_runs[run] = self._read_before.read(run, self._runs.folder(run) / _FILE)
        return self._read_runs[run]

    def _unpublished(self, ahead: Mapping[TableName, TableEntry]) -> Mapping[TableName, TableEntry]:
        file = self._folder / _UNPUBLISHED
        if file.is_file() and _checked(file).get("after") == self._current:
            return _read_file(file).tables
        return {**self.published, **ahead}

    # -- retention --------------------------------------------------------------------------------------

    def _kept_runs(self) -> list[int]:
        """Return the numbers of the catalogues to keep, the last one at the end."""
        runs = [run for run in self._runs.numbers() if run <= self._current]
        count = _KEPT
        if self._retention is not None and self._retention.runs is not None:
            count = max(count, self._retention.runs)
        elif self._retention is not None and self._retention.age is not None:
            since = datetime.now(UTC) - self._retention.age
            # One more than began since: tables were as the one before has left them.
            young = [run for run in runs if _published_at(self._runs.folder(run) / _FILE) >= since]
            count = max(count, len(young) + 1)
        return runs[-count:]

    def _earlier(self) -> list[Mapping[TableName, TableEntry]]:
        """Return the tables of the kept catalogues before the last one."""
        kept = [run for run in self._runs.numbers() if run < self._current]
        return [self._of_run(run).tables for run in kept]

    def _for_rollback(self) -> list[Mapping[TableName, TableEntry]]:
        """Return tables as of each run whose states and input files are kept."""
        return [self.published, *self._earlier()] if self._retention is not None else []

    def _entries_of(self, name: TableName) -> list[TableEntry]:
        """Return all kept entries of a table."""
        return [of[name] for of in (self.entries, self.published, *self._earlier()) if name in of]

    def _known(self) -> set[TableName]:
        """Return the names of all tables that the storage has, or has had."""
        return {*self._gone}.union(self.entries, self.published, *self._earlier())

    def _clean(self) -> None:
        """Remove versions, changes and states that neither kept catalogues nor readers need."""
        self._runs.retain(kept := self._kept_runs())
        self._read_runs = {run: each for run, each in self._read_runs.items() if run in kept}
        self._read_before.retain(kept)
        # As far as the last run has come; and what readers were still to get then, in each earlier one.
        needed = [(self.entries, self.entries)]
        needed += [(of, without_deliveries(of)) for of in self._earlier()]
        oldest = [(entries, oldest_versions_read(readers.values())) for entries, readers in needed]
        for name in self._known():
            entries = self._entries_of(name)
            if not entries or entries[0].layout != SINK:
                self.rows(name).retain({each.version for each in entries})
            else:  # Rows for a sink stay until they are delivered.
                last = max(of[name].version if name in of else 0 for of in (self.entries, self.published))
                self.rows(name).retain(range(last + 1))
            changes = set[int]()
            for tables, read in oldest:
                if (entry := tables.get(name)) is not None:
                    least = min(read.get(key, entry.version) for key in name.keys)
                    changes |= {*range(least + 1, entry.version + 1)}
            self.changes(name).retain(changes)
            states = self.states(self.storage, name)
            for each in (self.rows(name), self.changes(name), states):
                each.discard_staged()
            in_use = (of[name] for of in (self.entries, *self._for_rollback()) if name in of)
            states.retain({each.generation for each in in_use})
            remove_empty(states.path, self.changes(name).path, *(() if entries else (self.rows(name).path,)))

    def files_read(self) -> Iterator[tuple[str, list[int]]]:
        """Yield the input files that tables were made from, with their marks."""
        for entries in (self.published, self.entries, *self._for_rollback()):
            for entry in entries.values():
                for positions in entry.positions.values():
                    for position in positions.values():
                        if isinstance(position, dict):
                            yield from position.items()

    def _of(self, kind: str, name: TableName) -> Path:
        return self.storage / kind / _escaped(name)


def expectation_totals(
    name: TableName, expectations: Iterable[str], entries: Mapping[TableName, TableEntry]
) -> dict[str, ExpectationCounts]:
    """Return the counts of all rows that a table's query makes, dropped ones included, by expectation."""
    beside = [entry for other, entry in entries.items() if other.owner == name and other != name]
    dropped = entries.get(name.beside(DROPPED))
    rows = entries[name].rows + (0 if dropped is None else dropped.rows)
    failed = sum((Counter(entry.failed) for entry in beside), Counter[str]())
    return {each: ExpectationCounts(rows - failed[each], failed[each]) for each in expectations}


@dataclass(frozen=True, slots=True)
class PublishedRun:
    """A run that has published tables. at: when."""

    number: int
    at: datetime
    tables: Mapping[TableName, TableEntry]


def _published_at(file: Path) -> datetime:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC)


@dataclass(frozen=True, slots=True)
class _CatalogFile:
    """Content of a catalogue's file.

    tables: published, or as far as an unfinished run has come. ahead: newer entries left by such a run.
    gone:   last version numbers of tables that are no longer there.
    """

    tables: Mapping[TableName, TableEntry]
    ahead: Mapping[TableName, TableEntry]
    gone: Mapping[TableName, int]


@dataclass(slots=True)
class ReadCatalogues:
    """Catalogues of runs that this process has read, with the identities of their files, by run.

    A catalogue is never changed. But a storage may be removed, and its numbers begin again.
    """

    _files: dict[int, tuple[tuple[int, ...], _CatalogFile]] = field(
        default_factory=dict[int, "tuple[tuple[int, ...], _CatalogFile]"]
    )

    def read(self, run: int, file: Path) -> _CatalogFile:
        """Return the content of a catalogue's file. Raises `CatalogDamaged`."""
        try:
            identity = identity_of(os.stat(file))
        except OSError:
            return _read_file(file)  # It says what is wrong.
        known = self._files.get(run)
        if known is None or known[0] != identity:
            known = self._files[run] = identity, _read_file(file)
        return known[1]

    def retain(self, runs: Collection[int]) -> None:
        """Forget all catalogues but those of these runs."""
        for run in self._files.keys() - set(runs):
            del self._files[run]


def _body(
    entries: Mapping[TableName, TableEntry],
    ahead: Mapping[TableName, TableEntry] | None = None,
    gone: Mapping[TableName, int] | None = None,
) -> dict[str, Any]:
    def listed(entries: Mapping[TableName, TableEntry]) -> list[Any]:
        return [[name.database, name.table, _fields(each)] for name, each in entries.items()]

    missing = [[name.database, name.table, version] for name, version in (gone or {}).items()]
    return {"tables": listed(entries), "ahead": listed(ahead or {}), "gone": missing}


def _fields(entry: TableEntry) -> dict[str, Any]:
    # `asdict` copies the positions, which may have thousands of files.
    return {field.name: getattr(entry, field.name) for field in fields(entry)}


def _read_file(file: Path) -> _CatalogFile:
    def entries(listed: list[Any]) -> dict[TableName, TableEntry]:
        return {TableName(database, table): TableEntry(**entry) for database, table, entry in listed}

    try:
        body = _checked(file)
        gone = {TableName(database, table): int(version) for database, table, version in body.get("gone", [])}
        return _CatalogFile(entries(body["tables"]), entries(body.get("ahead", [])), gone)
    except (KeyError, TypeError, ValueError) as error:
        raise _damaged(file, f"{error!r}.") from None


def oldest_versions_read(readers: Iterable[TableEntry]) -> dict[str, int]:
    """Return the oldest version of each table, by its key, that one of its readers has read up to."""
    least: dict[str, int] = {}
    for entry in readers:
        for positions in entry.positions.values():
            for key, position in positions.items():
                if isinstance(position, int):
                    least[key] = min(position, least.get(key, position))
    return least


def without_deliveries(tables: Mapping[TableName, TableEntry]) -> Mapping[TableName, TableEntry]:
    """Return tables without the positions of their deliveries, which compare rows after a rollback."""
    return {
        name: replace(entry, positions={k: v for k, v in entry.positions.items() if k != DELIVERY})
        for name, entry in tables.items()
    }


def _checked(file: Path) -> dict[str, Any]:
    try:
        return read_checked(file)
    except CheckpointDamaged as error:
        raise _damaged(file, error.why) from None


def _damaged(file: Path, why: str) -> CatalogDamaged:
    return CatalogDamaged(
        f"the catalogue {file} cannot be read",
        why=why,
        fix="restore the storage from a backup, or remove it to recompute all tables",
        file=str(file),
    )


@lru_cache(maxsize=1 << 12)
def _escaped(name: TableName) -> Path:
    return subfolder_for(subfolder_for(Path(), name.database), name.table)


@dataclass(frozen=True, slots=True)
class TableState:
    """State of an incremental table: the checkpoint of its flow, with the flow's changelog beside it.

    A run writes down how far its inputs go before it begins a tick, since a tick that is committed may
    never get into the catalogue.
    """

    folder: Path

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def sink(self) -> Path:
        return self.folder / "changes"

    @property
    def last_tick(self) -> int:
        return CommitLog(self.checkpoint).last_tick()

    def _begun(self, tick: int) -> Path:
        return self.folder / f"tick-{tick}.json"

    def begin(self, positions: Positions) -> None:
        """Record the positions of the inputs after the next tick."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / ".tick.tmp"
        write_checked(aside, {"positions": dict(positions)}, durable=True)
        aside.replace(self._begun(self.last_tick + 1))

    def forget_before(self, tick: int) -> None:
        """Remove the changes and positions of earlier ticks, which are in versions of the table."""
        ticks = tick_folders(self.sink)
        ticks.retain([each for each in ticks.numbers() if each >= tick])
        for each in range(tick - 1, 0, -1):
            if not self._begun(each).exists():
                break
            self._begun(each).unlink()

    def erase(self, tick: int) -> None:
        """Remove deleted values from disk. tick: the last one whose changes are in a version."""
        self.forget_before(tick)
        if self.last_tick == tick:
            # The sink expects the folder of its last tick; what was in it is in a version.
            for file in tick_folders(self.sink).folder(tick).glob("*"):
                _empty(file)
        from headrace.state.checkpoint import erase

        erase(self.checkpoint)

    def positions(self, entry: TableEntry, flow: str) -> Positions | None:
        """Return the positions up to which the state has read its inputs; None if there is no state."""
        last = self.last_tick
        if not last:
            return None
        if last == entry.tick:
            return entry.positions.get(flow, {})
        from headrace.io.files import changelog

        changelog.recover(self.sink, last)
        try:
            return read_checked(self._begun(last))["positions"]
        except CheckpointDamaged:
            return None

    def ticks_after(self, tick: int) -> list[Path]:
        """Return the folders of later ticks that changed something."""
        ticks = tick_folders(self.sink)
        return [ticks.folder(each) for each in ticks.numbers() if each > tick]


def _empty(file: Path) -> None:
    """Replace a Parquet file with one without rows."""
    import pyarrow.parquet as pq

    columns = pq.read_schema(file).empty_table()
    aside = file.with_name(f".{file.name}.tmp")
    pq.write_table(columns, aside)
    aside.replace(file)
