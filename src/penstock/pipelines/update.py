"""Bringing one table up to date: by the changes of its inputs, or by Spark from the whole of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from signal import Signals
from typing import TYPE_CHECKING, Any

from penstock.errors import CheckpointDamaged, FlowChanged
from penstock.io.delivery.atomic_files import published_ticks, remove_folder, tick_folder
from penstock.io.files import changelog
from penstock.io.source import WEIGHT as SOURCE_WEIGHT
from penstock.pipelines.catalog import Catalog, Position, TableEntry
from penstock.pipelines.definitions import TableName, quoted
from penstock.pipelines.errors import PipelineError, QueryRefused
from penstock.pipelines.graph import AnalysedQuery, Graph, Table, as_stored, settings
from penstock.pipelines.leaves import (
    ConstantLeaf,
    FilesLeaf,
    Leaf,
    TableLeaf,
    files_there,
    frame_of_plan,
    relation_of_files,
    with_leaves,
)
from penstock.pipelines.plans import ANSWER, Method, TablePlan
from penstock.pipelines.versions import (
    WEIGHT,
    VersionWriter,
    check_rows,
    read_changes,
    read_rows,
    read_sink,
    repeated,
    rows_in,
    summed,
    weighted,
)
from penstock.state.commit import CommitLog, read_checked, write_checked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Positions = Mapping[str, "Position | None"]


@dataclass(frozen=True, slots=True)
class Updated:
    """What an update did. rows_in: rows of changes that were read; None where Spark read whole inputs."""

    entry: TableEntry
    method: Method
    rows_in: int | None
    why: str = ""


@dataclass(slots=True)
class Cut:
    """The inputs of one run, the same for all its tables.

    entries: tables as far as the run has come. listings: the files of each input that is files.
    folders: what was in each folder when the run first looked.
    """

    catalog: Catalog
    graph: Graph
    spark: SparkSession
    entries: dict[TableName, TableEntry]
    listings: dict[str, dict[str, list[int]]] = field(default_factory=dict[str, dict[str, list[int]]])
    folders: dict[str, frozenset[str]] = field(default_factory=dict[str, frozenset[str]])

    def position(self, leaf: Leaf) -> Position | None:
        """Return how far an input goes in this run; None if that cannot be said.

        Raises `QueryRefused` for a table without rows.
        """
        match leaf:
            case TableLeaf():
                return self._entry(leaf.name).version
            case FilesLeaf():
                if leaf.exact not in self.listings:
                    self.listings[leaf.exact] = self._files_of_the_cut(leaf)
                return self.listings[leaf.exact]
            case ConstantLeaf():
                return leaf.key
            case _:
                return None

    def _files_of_the_cut(self, leaf: FilesLeaf) -> dict[str, list[int]]:
        """List the files of a leaf without those that came after the run first looked into their folders."""
        known: set[str] = set()
        for root in leaf.roots:
            folder = root if os.path.isdir(root) else os.path.dirname(root)
            if folder not in self.folders:
                self.folders[folder] = frozenset(
                    os.path.join(at, name) for at, _, names in os.walk(folder) for name in names
                )
            known |= self.folders[folder]
        return {path: mark for path, mark in files_there(leaf).items() if path in known}

    def positions(self, query: AnalysedQuery) -> dict[str, Position | None]:
        return {leaf.key: self.position(leaf) for leaf in query.leaves}

    def whole(self, leaf: Leaf) -> DataFrame:
        """Return all rows of an input."""
        position = self.position(leaf)
        if isinstance(leaf, TableLeaf):
            assert isinstance(position, int)
            return self._rows(leaf.name, position)
        if isinstance(leaf, FilesLeaf):
            assert isinstance(position, dict)
            return self._files(leaf, position)
        return frame_of_plan(leaf.node, self.spark)

    def changes(self, leaf: Leaf, before: Position | None) -> DataFrame | None:
        """Return what changed in an input since a position, with weights; None if that is not known."""
        now = self.position(leaf)
        if isinstance(leaf, TableLeaf) and isinstance(before, int) and isinstance(now, int):
            return self._table_changes(leaf, before, now)
        if isinstance(leaf, FilesLeaf) and isinstance(before, dict) and isinstance(now, dict):
            if any(now.get(path) != mark for path, mark in before.items()):
                return None  # What stood in a file that has changed, or is gone, nobody knows.
            return weighted(self._files(leaf, now.keys() - before.keys()), 1)
        if isinstance(leaf, ConstantLeaf) and before == now:
            return weighted(frame_of_plan(leaf.node, self.spark).limit(0), 1)
        return None

    def unread(self, leaf: Leaf, before: Position | None, table: Table) -> DataFrame:
        """Return the rows that a stream into `table` has not read since a position; all without one.

        Raises `PipelineError` if rows that it has read were taken back.
        """
        if before is None:
            return self.whole(leaf)
        if isinstance(leaf, FilesLeaf):
            now = self.position(leaf)
            assert isinstance(now, dict)
            assert isinstance(before, dict)
            return self._files(leaf, now.keys() - before.keys())
        changes = self.changes(leaf, before)
        if changes is None or not changes.where(f"{WEIGHT} < 0").isEmpty():
            raise PipelineError(
                f"{leaf.key} has taken rows back, which a stream into {table.name} has read",
                where=[table.dataset.location],
                why="What a streaming table holds stays.",
                fix=f"make it a materialized view, or read all again: --full-refresh {table.name}",
            )
        return changes.drop(WEIGHT)

    def _table_changes(self, leaf: TableLeaf, before: int, now: int) -> DataFrame | None:
        folders = [self.catalog.changes(leaf.name, version) for version in range(before + 1, now + 1)]
        if not all(folder.is_dir() for folder in folders) or before > now:
            return None
        table = self._table(leaf.name)
        none = self.spark.createDataFrame(self.spark.sparkContext.emptyRDD(), as_stored(table.schema))
        frames = [read_changes(folder, table, self.spark) for folder in folders]
        whole = weighted(none, 1)
        for frame in frames:
            whole = whole.unionByName(frame)
        # A row may have come in one version and gone in a later one.
        return summed(whole) if len(frames) > 1 else whole

    def rows_changed(self, leaves: Iterable[Leaf], before: Positions) -> int | None:
        """Return how many rows of inputs have changed since positions; None where only reading them tells."""
        count = 0
        for leaf in leaves:
            read, now = before.get(leaf.key), self.position(leaf)
            if not (isinstance(leaf, TableLeaf) and isinstance(read, int) and isinstance(now, int)):
                return None
            count += sum(rows_in(self.catalog.changes(leaf.name, at)) for at in range(read + 1, now + 1))
        return count

    def _rows(self, name: TableName, version: int) -> DataFrame:
        check_rows(self.catalog, self._table(name), self._entry(name))
        return read_rows(self.catalog.rows(name, version), self._table(name), self.spark)

    def _files(self, leaf: FilesLeaf, paths: Any) -> DataFrame:
        if paths:
            return frame_of_plan(relation_of_files(leaf, sorted(paths), self.spark), self.spark)
        schema = frame_of_plan(leaf.node, self.spark).schema
        return self.spark.createDataFrame(self.spark.sparkContext.emptyRDD(), schema)

    def _table(self, name: TableName) -> Table:
        return next(table for table in self.graph.tables if table.name == name)

    def _entry(self, name: TableName) -> TableEntry:
        if name not in self.entries:
            raise QueryRefused(
                f"{name} has no rows yet: it was never refreshed",
                fix=f"refresh it, too: --refresh {name}",
                dataset=str(name),
            )
        return self.entries[name]


@dataclass(frozen=True, slots=True)
class Updater:
    """Brings a table up to date, within a cut. anew: forget its rows, or streams, and state."""

    cut: Cut
    plan: TablePlan
    anew: bool

    @property
    def _table(self) -> Table:
        return self.plan.table

    @property
    def _before(self) -> TableEntry | None:
        return self.cut.catalog.entries.get(self._table.name)

    @property
    def _writer(self) -> VersionWriter:
        name = self._table.name
        told = bool(self.cut.graph.readers_of(name)) or self.cut.catalog.is_read(name)
        return VersionWriter(self.cut.catalog, self._table, self.cut.spark, told)

    def run(self) -> Updated:
        """Make the next version of the table, if anything changed. Raises the errors of its query."""
        return _METHODS[self.plan.method](self)

    def _entry(
        self, version: int, positions: Mapping[str, Positions], generation: int, tick: int
    ) -> TableEntry:
        known = {
            flow: {key: position for key, position in each.items() if position is not None}
            for flow, each in positions.items()
        }
        return TableEntry(
            version,
            self._writer.rows_of(version),
            self._table.schema.json(),
            self._table.layout,
            self.plan.fingerprint,
            generation,
            tick,
            known,
        )

    def _is_current(self, positions: Positions, before: Positions) -> bool:
        """Return whether the inputs are those that the table was made from."""
        return self.plan.stable and None not in positions.values() and dict(positions) == dict(before)

    # -- by Spark, from the whole inputs --

    def recompute(self) -> Updated:
        (query,) = self._table.queries
        now, before = self.cut.positions(query), self._before
        same = before is not None and before.fingerprint == self.plan.fingerprint and not self.anew
        if same and before is not None and self._is_current(now, before.positions.get(query.query.name, {})):
            return Updated(before, Method.RECOMPUTE, 0, self.plan.why)
        rows = self._over(query, self._whole(query))
        with settings(self.cut.spark, query.query.settings):
            version = self._writer.replace(rows)
        entry = self._entry(version, {query.query.name: now}, 0, 0)
        return Updated(entry, Method.RECOMPUTE, None, self.plan.why)

    def _whole(self, query: AnalysedQuery) -> dict[str, Callable[[], DataFrame]]:
        """Return all rows of the inputs as they are in this run."""
        return {
            leaf.exact: partial(self.cut.whole, leaf)
            for leaf in query.leaves
            if isinstance(leaf, (TableLeaf, FilesLeaf))
        }

    # -- rows of streams --

    def append(self) -> Updated:
        before = self._before if not self.anew else None
        positions: dict[str, Positions] = {}
        rows: DataFrame | None = None
        for query in self._table.queries:
            read = before.positions.get(query.query.name, {}) if before else {}
            positions[query.query.name] = now = self._furthest(query, read)
            streams = [leaf for leaf in query.leaves if leaf.streaming]
            if before and all(read.get(leaf.key) == now[leaf.key] for leaf in streams):
                continue
            unread = {
                leaf.exact: partial(self.cut.unread, leaf, read.get(leaf.key), self._table)
                for leaf in streams
            }
            frame = self._over(query, {**self._whole(query), **unread})
            frame = frame.select(*map(quoted, self._table.schema.fieldNames()))
            rows = frame if rows is None else rows.unionByName(frame)
        with settings(self.cut.spark, self._settings):
            version = self._appended(before, rows)
        # A flow that is not in the project now, and returns, goes on where it was.
        gone = {} if before is None else {k: v for k, v in before.positions.items() if k not in positions}
        return Updated(self._entry(version, {**gone, **positions}, 0, 0), Method.APPEND, None)

    def _appended(self, before: TableEntry | None, rows: DataFrame | None) -> int:
        schema, layout = self._table.schema, self._table.layout
        none = self.cut.spark.createDataFrame(self.cut.spark.sparkContext.emptyRDD(), as_stored(schema))
        if before is None:
            return self._writer.replace(none if rows is None else rows)
        if before.schema != schema.json() or before.layout != layout:
            return self._writer.extend(none if rows is None else rows)
        return before.version if rows is None else self._writer.append(rows)

    def _furthest(self, query: AnalysedQuery, read: Positions) -> dict[str, Position | None]:
        """Return how far inputs are read in this run; files that a stream has read stay read when they go."""
        found: dict[str, Position | None] = {}
        for leaf in query.leaves:
            before, now = read.get(leaf.key), self.cut.position(leaf)
            both = leaf.streaming and isinstance(before, dict) and isinstance(now, dict)
            found[leaf.key] = {**before, **now} if both else now  # pyright: ignore[reportGeneralTypeIssues]
        return found

    @property
    def _settings(self) -> Mapping[str, str]:
        return {key: value for query in self._table.queries for key, value in query.query.settings.items()}

    # -- by changes, row by row --

    def stateless(self) -> Updated:
        (query,) = self._table.queries
        name, now, before = query.query.name, self.cut.positions(query), self._before
        same = before is not None and before.fingerprint == self.plan.fingerprint and not self.anew
        read = before.positions.get(name, {}) if before is not None and same else {}
        if before is not None and read and self._is_current(now, read):
            return Updated(before, self.plan.method, 0)
        changes = {leaf.exact: self.cut.changes(leaf, read.get(leaf.key)) for leaf in query.leaves}
        known = {key: rows for key, rows in changes.items() if rows is not None}
        with settings(self.cut.spark, query.query.settings):
            if len(known) < len(changes):
                version = self._writer.replace(self._over(query, self._whole(query)))
                return Updated(
                    self._entry(version, {name: now}, 0, 0), self.plan.method, None, "from all rows"
                )
            version = self._applied(query, known)
        changed = self.cut.rows_changed(query.leaves, read)
        return Updated(self._entry(version, {name: now}, 0, 0), self.plan.method, changed)

    def _applied(self, query: AnalysedQuery, changes: Mapping[str, DataFrame]) -> int:
        """Write what a query makes of changes of its inputs."""

        def part(condition: str, copies: str) -> DataFrame:
            def rows_of(rows: DataFrame) -> DataFrame:
                return repeated(rows.where(condition), copies)

            return self._over(query, {exact: partial(rows_of, rows) for exact, rows in changes.items()})

        added = part(f"{WEIGHT} > 0", WEIGHT)
        if all(rows.where(f"{WEIGHT} < 0").isEmpty() for rows in changes.values()):
            return self._writer.append(added)
        removed = part(f"{WEIGHT} < 0", f"-{WEIGHT}")
        return self._writer.apply(weighted(added, 1).unionByName(weighted(removed, -1)))

    def _over(self, query: AnalysedQuery, replaced: Mapping[str, Callable[[], DataFrame]]) -> DataFrame:
        return with_leaves(query.plan, replaced, self.cut.graph.names, self.cut.spark)

    # -- by changes, with state --

    def incremental(self) -> Updated:
        with settings(self.cut.spark, self._settings):
            return self._incremental()

    def _incremental(self) -> Updated:
        (query,) = self._table.queries
        before, name = self._before, query.query.name
        now = self._furthest(query, before.positions.get(name, {}) if before and not self.anew else {})
        if before is not None and (
            self.anew or before.fingerprint != self.plan.fingerprint or not before.generation
        ):
            return self._from_scratch(before.generation + 1, now)
        if before is None:
            return self._from_scratch(1, now)
        state = _State(self.cut.catalog.state(self._table.name, before.generation))
        state.forget_before(before.tick)
        read = state.positions(before, name)
        if read is None:
            return self._from_scratch(before.generation + 1, now)
        changed = 0
        if not self._is_current(now, read):
            changes = self._all_changes(read)
            if changes is None:
                return self._from_scratch(before.generation + 1, now)
            try:
                changed = self._tick(state, changes, now)
            except (FlowChanged, CheckpointDamaged):
                return self._from_scratch(before.generation + 1, now)
        ticks = state.ticks_after(before.tick)
        version = before.version
        if ticks:
            rows = read_sink(ticks, self._table, self.cut.spark)
            version = self._writer.apply(rows)
        made = self._entry(version, {name: now}, before.generation, state.last_tick)
        return Updated(made, Method.INCREMENTAL, changed)

    def _all_changes(self, read: Positions) -> dict[str, DataFrame] | None:
        assert self.plan.inputs is not None
        found: dict[str, DataFrame] = {}
        for source, leaf in self.plan.inputs.items():
            if leaf.streaming:
                found[source] = self.cut.unread(leaf, read.get(leaf.key), self._table)
                continue
            changes = self.cut.changes(leaf, read.get(leaf.key))
            if changes is None:
                return None
            found[source] = changes.withColumnRenamed(WEIGHT, SOURCE_WEIGHT)
        return found

    def _from_scratch(self, generation: int, now: Positions) -> Updated:
        assert self.plan.inputs is not None
        (query,) = self._table.queries
        if self._before is not None and not self.anew:
            self._check_records_are_there(self._before.positions.get(query.query.name, {}))
        state = _State(self.cut.catalog.state(self._table.name, generation))
        remove_folder(state.folder)
        whole = {source: self.cut.whole(leaf) for source, leaf in self.plan.inputs.items()}
        changed = self._tick(state, whole, now)
        ticks = state.ticks_after(0)
        if ticks:
            rows = read_sink(ticks, self._table, self.cut.spark)
            version = self._writer.replace_by_changes(rows)
        else:
            empty = self.cut.spark.createDataFrame(
                self.cut.spark.sparkContext.emptyRDD(), as_stored(self._table.schema)
            )
            version = self._writer.replace(empty)
        made = self._entry(version, {query.query.name: now}, generation, state.last_tick)
        return Updated(made, Method.INCREMENTAL, changed, "from all rows")

    def _check_records_are_there(self, read: Positions) -> None:
        """Raise `PipelineError` if records that a table of records was made from are gone."""
        assert self.plan.inputs is not None
        for leaf in (each for each in self.plan.inputs.values() if each.streaming):
            changes = self.cut.changes(leaf, read.get(leaf.key))
            if changes is None or not changes.where(f"{WEIGHT} < 0").isEmpty():
                raise PipelineError(
                    f"{self._table.name} would be made anew, of fewer records than it was made from",
                    where=[self._table.dataset.location],
                    why=f"Its query has changed, and not all that it has read of {leaf.key} is there.",
                    fix=f"to lose what came of them, --full-refresh {self._table.name}; "
                    "else go back to the query before, or define a table beside it",
                )

    def _tick(self, state: _State, inputs: Mapping[str, DataFrame], now: Positions) -> int:
        """Run the flow on changes; return their number."""
        from penstock.io.files.changelog import Changelog
        from penstock.spark.run_command import run
        from penstock.spark.sources.opening import Frame

        assert self.plan.flow is not None
        state.begin(now)
        tick = state.last_tick
        result = run(
            self.plan.flow,
            self.cut.spark,
            sources={name: Frame(frame, every_run=True) for name, frame in inputs.items()},
            sinks={ANSWER: Changelog(state.sink)},
            checkpoint=state.checkpoint,
            keep_ticks=1,
        )
        if result.stopped_by is not None:
            raise Stopped(result.stopped_by)
        assert state.last_tick > tick
        return result.rows_in


class Stopped(BaseException):
    """Exception that ends a run after a signal. signal: which one."""

    def __init__(self, signal: Signals) -> None:
        super().__init__(signal)
        self.signal = signal


_METHODS: Mapping[Method, Callable[[Updater], Updated]] = {
    Method.RECOMPUTE: Updater.recompute,
    Method.APPEND: Updater.append,
    Method.STATELESS: Updater.stateless,
    Method.INCREMENTAL: Updater.incremental,
}


@dataclass(frozen=True, slots=True)
class _State:
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
        return max(CommitLog(self.checkpoint).ticks(), default=0)

    def _begun(self, tick: int) -> Path:
        return self.folder / f"tick-{tick}.json"

    def begin(self, positions: Positions) -> None:
        """Keep how far the next tick will have read the inputs."""
        self.folder.mkdir(parents=True, exist_ok=True)
        aside = self.folder / ".tick.tmp"
        write_checked(aside, {"positions": dict(positions)}, durable=True)
        aside.replace(self._begun(self.last_tick + 1))

    def forget_before(self, tick: int) -> None:
        """Remove what ticks before one have left, which is in versions of the table."""
        for each in published_ticks(self.sink):
            if each < tick:
                remove_folder(self.sink / tick_folder(each))
        for each in range(tick - 1, 0, -1):
            if not self._begun(each).exists():
                break
            self._begun(each).unlink()

    def positions(self, entry: TableEntry, flow: str) -> Positions | None:
        """Return how far the state has read its inputs; None if there is no state."""
        last = self.last_tick
        if not last:
            return None
        if last == entry.tick:
            return entry.positions.get(flow, {})
        changelog.recover(self.sink, last)
        try:
            return read_checked(self._begun(last))["positions"]
        except CheckpointDamaged:
            return None

    def ticks_after(self, tick: int) -> list[Path]:
        """Return the folders of later ticks that changed something."""
        return [self.sink / tick_folder(each) for each in published_ticks(self.sink) if each > tick]
