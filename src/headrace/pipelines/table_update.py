"""Update of one table: from the changes of its inputs, or by Spark from all their rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from signal import Signals
from time import perf_counter
from typing import TYPE_CHECKING

from headrace.errors import CheckpointDamaged, FlowChanged, UnreadableSource
from headrace.expr.spark_columns import quoted
from headrace.file_system import remove_folder
from headrace.pipelines.catalog import DELIVERY, Position, Positions, TableEntry, TableState
from headrace.pipelines.definitions import DatasetKind
from headrace.pipelines.deliveries import stage
from headrace.pipelines.errors import CatalogDamaged, PipelineError
from headrace.pipelines.expectations import ExpectationCounts
from headrace.pipelines.graph import AnalysedQuery, StoredTable, empty_frame, settings
from headrace.pipelines.leaves import DeltaLeaf, FilesLeaf, Leaf, TableLeaf, with_leaves
from headrace.pipelines.run_snapshot import RunSnapshot
from headrace.pipelines.table_plan import ANSWER, Costs, Method, TablePlan
from headrace.pipelines.table_versions import TableVersions
from headrace.pipelines.weighted_rows import WEIGHT, expand, has_removals, with_weight
from headrace.tables.version_folders import WEIGHT as SOURCE_WEIGHT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


SHARD_ROWS = 2_000_000
"""Rows of the inputs for each shard of state, where that makes more shards than tasks run at a time."""

_WORTH_A_SHARD = 100_000
"""Rows of the inputs for each shard beyond the second: a run without Spark opens all of them."""


def shard_count(rows: int, tasks: int, *, known: bool) -> int:
    """Return the number of shards of new state. rows: of the inputs, at least. tasks: that run at a time.

    >>> [shard_count(rows, 16, known=True) for rows in (1_000, 1_000_000, 50_000_000)]
    [2, 10, 25]
    """
    most = max(2, rows // _WORTH_A_SHARD) if known else tasks
    return max(min(tasks, most), -(-rows // SHARD_ROWS))


_FROM_ALL_ROWS = "from all rows: "


@dataclass(frozen=True, slots=True)
class Updated:
    """Outcome of an update.

    rows_in: rows of changes and streams that were read; None where that is not known, as of whole inputs that
             Spark has read. whole: whether it was made from all rows, and `why` says why.
    estimated: because that was estimated to cost less.
    expectations: counts of the rows that came, by expectation. expectation_totals: of all rows of the query.
    """

    entry: TableEntry
    method: Method
    rows_in: int | None
    why: str = ""
    whole: bool = False
    estimated: bool = False
    expectations: Mapping[str, ExpectationCounts] = field(default_factory=dict[str, ExpectationCounts])
    expectation_totals: Mapping[str, ExpectationCounts] = field(default_factory=dict[str, ExpectationCounts])


@dataclass(frozen=True, slots=True)
class Updater:
    """Maintenance of one table from a run's snapshot. anew: rebuild it from scratch (--full-refresh)."""

    snapshot: RunSnapshot
    plan: TablePlan
    anew: bool

    @property
    def _table(self) -> StoredTable:
        return self.plan.table

    @property
    def _before(self) -> TableEntry | None:
        return self.snapshot.entries.get(self._table.name)

    @property
    def _writer(self) -> TableVersions:
        return self.snapshot.versions(self._table)

    def run(self) -> Updated:
        """Write the next version of the table, if anything changed. Raises the errors of its query."""
        start = perf_counter()
        try:
            if self.plan.method in (Method.STATELESS, Method.INCREMENTAL, Method.AFFECTED):
                self.snapshot.keep(leaf for query in self._table.queries for leaf in query.leaves)
            with settings(self.snapshot.spark, self._settings):
                updated = _METHODS[self.plan.method](self)
        except (PipelineError, UnreadableSource) as error:
            if error.where:
                raise
            where = [self._table.dataset.location]
            raise type(error)(error.what, where=where, why=error.why, fix=error.fix, **error.facts) from None
        return self._measured(updated, perf_counter() - start) if self.plan.chooses else updated

    @property
    def _costs(self) -> Costs:
        """Measured costs of the last updates by the current query."""
        before = self._before
        if before is None or before.fingerprint != self.plan.fingerprint:
            return Costs()
        return Costs.from_entry(before.costs)

    def _measured(self, updated: Updated, seconds: float) -> Updated:
        (query,) = self._table.queries
        rows = self.snapshot.rows_of(query.leaves) if updated.whole else updated.rows_in
        costs = self._costs.after(seconds, rows, whole=updated.whole, estimated=updated.estimated)
        return replace(updated, entry=replace(updated.entry, costs=costs.to_entry()))

    def _why_whole(self, query: AnalysedQuery, read: Positions) -> str:
        """Return why the table is computed from all rows despite known input changes; empty if it is not."""
        if not self.plan.chooses or not read:
            return ""
        changes, rows = self.snapshot.rows_changed(query.leaves, read), self.snapshot.rows_of(query.leaves)
        return "" if changes is None or rows is None else self._costs.why_whole(changes, rows)

    def _entry(
        self,
        version: int,
        positions: Mapping[str, Positions],
        generation: int = 0,
        tick: int = 0,
        rows: int | None = None,
    ) -> TableEntry:
        known = {
            flow: {key: position for key, position in each.items() if position is not None}
            for flow, each in positions.items()
        }
        known.pop(DELIVERY, None)
        if self._table.dataset.delivery:
            # Its changes from there on are kept as for any table that reads it.
            published = self.snapshot.catalog.published.get(self._table.name)
            known[DELIVERY] = {self._table.name.keys[0]: published.version if published else 0}
        return TableEntry(
            version,
            self._writer.count(version) if rows is None else rows,
            self._table.schema.json(),
            self._table.layout,
            self.plan.fingerprint,
            generation,
            tick,
            known,
            parts=self.plan.parts,
            failed=self._before.failed if self._before is not None else {},
        )

    def _is_current(self, positions: Positions, before: Positions) -> bool:
        """Return whether the table was computed from the current inputs."""
        return self.plan.stable and None not in positions.values() and dict(positions) == dict(before)

    def _inputs_unchanged(self, query: AnalysedQuery, read: Positions) -> bool:
        """Return whether the inputs are known to be unchanged since positions."""
        return self.plan.stable and all(
            self.snapshot.input(leaf).is_unchanged(read.get(leaf.key)) for leaf in query.leaves
        )

    def _why_from_scratch(self, before: TableEntry | None) -> str:
        """Return why the last version cannot be continued; empty if it can."""
        if before is None:
            return "first run"
        if self.anew:
            return "--full-refresh"
        if before.fingerprint != self.plan.fingerprint:
            from headrace.pipelines.table_fingerprints import describe_changes

            return describe_changes(before.parts, self.plan.parts)
        return ""

    def _why_unknown(self, query: AnalysedQuery, read: Positions) -> str:
        """Return why the changes of the inputs since `read` are unknown."""
        unknown = (
            leaf for leaf in query.leaves if self.snapshot.input(leaf).changes(read.get(leaf.key)) is None
        )
        return ", ".join(self.snapshot.input(leaf).why_unknown(read.get(leaf.key)) for leaf in unknown)

    # -- by Spark, from the whole inputs --

    def recompute(self) -> Updated:
        (query,) = self._table.queries
        now, before = self.snapshot.positions(query), self._before
        if before is not None and not self._why_from_scratch(before):
            read = before.positions.get(query.query.name, {})
            if self._is_current(now, read):
                return Updated(before, Method.RECOMPUTE, 0, self.plan.why)
            if self._inputs_unchanged(query, read):
                return Updated(
                    self._entry(before.version, {query.query.name: now}), Method.RECOMPUTE, 0, self.plan.why
                )
        rows = self._run_query(query, self._whole_inputs(query))
        version = self._writer.replace(rows)
        entry = self._entry(version, {query.query.name: now})
        return Updated(entry, Method.RECOMPUTE, None, self.plan.why, whole=True)

    def _whole_inputs(self, query: AnalysedQuery) -> dict[str, Callable[[], DataFrame]]:
        """Return all rows of the inputs as they are in this run."""
        return {
            leaf.exact: self.snapshot.input(leaf).whole
            for leaf in query.leaves
            if isinstance(leaf, (TableLeaf, FilesLeaf, DeltaLeaf))
        }

    # -- by Spark, from the rows with the keys of changed rows --

    def affected(self) -> Updated:
        (query,) = self._table.queries
        name, now, before = query.query.name, self.snapshot.positions(query), self._before
        why = self._why_from_scratch(before)
        read = before.positions.get(name, {}) if before is not None and not why else {}
        if before is not None and read and self._is_current(now, read):
            return Updated(before, self.plan.method, 0, self.plan.why)
        if why := why or self._why_unknown(query, read):
            return self._recomputed(query, now, why)
        assert before is not None
        if self._inputs_unchanged(query, read):
            return Updated(self._entry(before.version, {name: now}), self.plan.method, 0, self.plan.why)
        from headrace.pipelines.affected_keys import keyed_plan
        from headrace.pipelines.affected_update import AffectedRows, WholeIsCheaper

        keyed = keyed_plan(self._table, query, self.snapshot.graph.names, self.snapshot.spark)
        assert keyed is not None
        for leaf in query.leaves:
            if leaf.exact not in keyed.keyed and not self.snapshot.input(leaf).is_unchanged(
                read.get(leaf.key)
            ):
                why = f"{leaf.key} has changed, which has no {', '.join(keyed.columns)}"
                return self._recomputed(query, now, why)
        try:
            version = AffectedRows(keyed, self.snapshot, read).write(self._writer)
        except CatalogDamaged as error:
            return self._recomputed(query, now, error.what)
        except WholeIsCheaper as error:
            return self._recomputed(query, now, str(error))
        changed = self.snapshot.rows_changed(query.leaves, read)
        return Updated(self._entry(version, {name: now}), self.plan.method, changed, self.plan.why)

    def _recomputed(self, query: AnalysedQuery, now: Positions, why: str) -> Updated:
        version = self._writer.replace(self._run_query(query, self._whole_inputs(query)))
        entry = self._entry(version, {query.query.name: now})
        return Updated(entry, self.plan.method, None, _FROM_ALL_ROWS + why, whole=True)

    # -- rows of streams --

    def append(self) -> Updated:
        before = self._before if not self.anew else None
        positions: dict[str, Positions] = {}
        read_on: list[tuple[list[Leaf], Positions]] = []
        rows: DataFrame | None = None
        for query in self._table.queries:
            read = before.positions.get(query.query.name, {}) if before else {}
            positions[query.query.name] = now = self._next_positions(query, read)
            streams = [leaf for leaf in query.leaves if leaf.streaming]
            if before and all(read.get(leaf.key) == now[leaf.key] for leaf in streams):
                continue
            unread = {
                leaf.exact: partial(self.snapshot.input(leaf).unread, read.get(leaf.key), self._table)
                for leaf in streams
            }
            read_on.append((streams, read))
            frame = self._run_query(query, {**self._whole_inputs(query), **unread})
            frame = frame.select(*map(quoted, self._table.schema.fieldNames()))
            rows = frame if rows is None else rows.unionByName(frame)
        if self._table.dataset.kind is DatasetKind.SINK:
            entry = self._stage_for_sink(positions, rows)
        else:
            # A flow that is not in the project now, and returns, goes on where it was.
            gone = {} if before is None else {k: v for k, v in before.positions.items() if k not in positions}
            entry = self._entry(self._append_rows(before, rows), {**gone, **positions})
        counts = [self.snapshot.rows_changed(streams, read) for streams, read in read_on]
        return Updated(entry, Method.APPEND, None if None in counts else sum(filter(None, counts)))

    def _stage_for_sink(self, positions: Mapping[str, Positions], rows: DataFrame | None) -> TableEntry:
        """Keep rows for a sink until the run is published."""
        none = empty_frame(self._table.schema, self.snapshot.spark)
        version, count = stage(self.snapshot.catalog, self._table, none if rows is None else rows)
        return self._entry(version, positions, rows=count)

    def _append_rows(self, before: TableEntry | None, rows: DataFrame | None) -> int:
        schema, layout = self._table.schema, self._table.layout
        none = empty_frame(schema, self.snapshot.spark)
        if before is None:
            return self._writer.replace(none if rows is None else rows)
        if before.schema != schema.json() or before.layout != layout:
            return self._writer.extend(none if rows is None else rows)
        return before.version if rows is None else self._writer.append(rows)

    def _next_positions(self, query: AnalysedQuery, read: Positions) -> dict[str, Position | None]:
        """Return the input positions of this run. Files read by a stream stay recorded when removed."""
        found: dict[str, Position | None] = {}
        for leaf in query.leaves:
            before, now = read.get(leaf.key), self.snapshot.input(leaf).position()
            both = leaf.streaming and isinstance(before, dict) and isinstance(now, dict)
            found[leaf.key] = {**before, **now} if both else now  # pyright: ignore[reportGeneralTypeIssues]
        return found

    @property
    def _settings(self) -> Mapping[str, str]:
        return {key: value for query in self._table.queries for key, value in query.query.settings.items()}

    # -- by changes, row by row --

    def stateless(self) -> Updated:
        (query,) = self._table.queries
        name, now, before = query.query.name, self.snapshot.positions(query), self._before
        from_scratch = self._why_from_scratch(before)
        read = before.positions.get(name, {}) if before is not None and not from_scratch else {}
        if before is not None and read and self._is_current(now, read):
            return Updated(before, self.plan.method, 0)
        estimated = self._why_whole(query, read)
        changes = {leaf.exact: self.snapshot.input(leaf).changes(read.get(leaf.key)) for leaf in query.leaves}
        known = {key: rows for key, rows in changes.items() if rows is not None}
        if estimated or len(known) < len(changes):
            version = self._writer.replace(self._run_query(query, self._whole_inputs(query)))
            made, rows = self._entry(version, {name: now}), self.snapshot.rows_changed(query.leaves, {})
            why = estimated or _FROM_ALL_ROWS + (from_scratch or self._why_unknown(query, read))
            return Updated(made, self.plan.method, rows, why, whole=True, estimated=bool(estimated))
        if before is not None and self._inputs_unchanged(query, read):
            return Updated(self._entry(before.version, {name: now}), self.plan.method, 0)
        version = self._apply_changes(query, known, read)
        changed = self.snapshot.rows_changed(query.leaves, read)
        return Updated(self._entry(version, {name: now}), self.plan.method, changed)

    def _apply_changes(self, query: AnalysedQuery, changes: Mapping[str, DataFrame], read: Positions) -> int:
        """Apply a query to its inputs' changes, and write the resulting changes."""
        # What may take rows back is looked at, and read for those that came and for those that went.
        doubtful = [
            leaf for leaf in query.leaves if not self.snapshot.input(leaf).adds_only(read.get(leaf.key))
        ]
        kept = {leaf.exact: changes[leaf.exact].persist() for leaf in doubtful}
        try:
            back = any(map(has_removals, kept.values()))
            return self._write_changes(query, {**changes, **kept}, has_retractions=back)
        finally:
            for rows in kept.values():
                rows.unpersist()

    def _write_changes(
        self, query: AnalysedQuery, changes: Mapping[str, DataFrame], *, has_retractions: bool
    ) -> int:
        def part(condition: str, copies: str) -> DataFrame:
            def rows_of(rows: DataFrame) -> DataFrame:
                return expand(rows.where(condition), copies)

            return self._run_query(query, {exact: partial(rows_of, rows) for exact, rows in changes.items()})

        added = part(f"{WEIGHT} > 0", WEIGHT)
        if not has_retractions:
            return self._writer.append(added)
        removed = part(f"{WEIGHT} < 0", f"-{WEIGHT}")
        return self._writer.apply(with_weight(added, 1).unionByName(with_weight(removed, -1)))

    def _run_query(self, query: AnalysedQuery, replaced: Mapping[str, Callable[[], DataFrame]]) -> DataFrame:
        return with_leaves(query.plan, replaced, self.snapshot.graph.names, self.snapshot.spark)

    # -- by changes, with state --

    def incremental(self) -> Updated:
        (query,) = self._table.queries
        before, name = self._before, query.query.name
        now = self._next_positions(query, before.positions.get(name, {}) if before and not self.anew else {})
        generation = self.snapshot.catalog.new_generation(self._table.name)
        if before is None:
            return self._from_scratch(generation, now, "first run")
        if why := self._why_from_scratch(before):
            return self._from_scratch(generation, now, why)
        if not before.generation:
            return self._from_scratch(generation, now, "it was made without state before")
        state = TableState(self._state_folder(before.generation))
        state.forget_before(before.tick)
        read = state.positions(before, name)
        if read is None:
            return self._from_scratch(generation, now, "its state is missing")
        changed = 0
        if not self._is_current(now, read):
            if why := self._why_whole(query, read):
                return replace(self._from_scratch(generation, now), why=why, estimated=True)
            changes = self._all_changes(read)
            if changes is None:
                return self._from_scratch(generation, now, self._why_unknown(query, read))
            if state.last_tick != before.tick and not all(
                self.snapshot.input(leaf).adds_only(read.get(leaf.key))
                for leaf in query.leaves
                if isinstance(leaf, FilesLeaf)
            ):
                # Nobody has looked whether the files stayed the same while the run that died has read them.
                return self._from_scratch(generation, now, "the run before died, and files have changed")
            if not self._inputs_unchanged(query, read):
                try:
                    changed = self._tick(state, changes, now)
                except (FlowChanged, CheckpointDamaged) as error:
                    return self._from_scratch(generation, now, error.what)
        ticks = state.ticks_after(before.tick)
        version = before.version
        if ticks:
            version = self._writer.apply_ticks(ticks)
        made = self._entry(version, {name: now}, before.generation, state.last_tick)
        return Updated(made, Method.INCREMENTAL, changed)

    def _state_folder(self, generation: int) -> Path:
        catalog = self.snapshot.catalog
        return catalog.states(catalog.storage, self._table.name).folder(generation)

    def _ticks_to_keep(self, state: TableState) -> int:
        """Return how many ticks its state keeps once the next one is committed."""
        before, tick = self._before, state.last_tick + 1
        if before is None or state.folder != self._state_folder(before.generation):
            return 1
        return self.snapshot.catalog.ticks_to_keep(self._table.name, before.generation, tick)

    def _all_changes(self, read: Positions) -> dict[str, DataFrame] | None:
        assert self.plan.inputs is not None
        found: dict[str, DataFrame] = {}
        for source, leaf in self.plan.inputs.items():
            if leaf.streaming:
                unread = self.snapshot.input(leaf).unread(read.get(leaf.key), self._table)
                found[source] = self._in_order(leaf, unread)
                continue
            changes = self.snapshot.input(leaf).changes(read.get(leaf.key))
            if changes is None:
                return None
            found[source] = changes.withColumnRenamed(WEIGHT, SOURCE_WEIGHT)
        return found

    def _in_order(self, leaf: Leaf, rows: DataFrame) -> DataFrame:
        """Return the rows of an input in the order in which the flow must read them."""
        (query,) = self._table.queries
        from headrace.pipelines.plans import in_time_order

        return in_time_order(rows, query, leaf, self.snapshot.spark) if leaf.streaming else rows

    def _from_scratch(self, generation: int, now: Positions, why: str = "") -> Updated:
        assert self.plan.inputs is not None
        (query,) = self._table.queries
        if self._before is not None and not self.anew:
            self._check_records_are_there(self._before.positions.get(query.query.name, {}))
        state = TableState(self._state_folder(generation))
        remove_folder(state.folder)
        whole = {
            s: self._in_order(leaf, self.snapshot.input(leaf).whole()) for s, leaf in self.plan.inputs.items()
        }
        changed = self._tick(state, whole, now, self._shards(query))
        ticks = state.ticks_after(0)
        if ticks:
            version = self._writer.replace(self._writer.rows_of_ticks(ticks))
        else:
            version = self._writer.replace(empty_frame(self._table.schema, self.snapshot.spark))
        made = self._entry(version, {query.query.name: now}, generation, state.last_tick)
        return Updated(made, Method.INCREMENTAL, changed, _FROM_ALL_ROWS + why, whole=True)

    def _shards(self, query: AnalysedQuery) -> int:
        """Return the number of state shards: each task keeps the rows of one shard in memory."""
        counts = [self.snapshot.rows_changed([leaf], {}) for leaf in query.leaves]
        tasks = self.snapshot.spark.sparkContext.defaultParallelism
        return shard_count(sum(filter(None, counts)), tasks, known=None not in counts)

    def _check_records_are_there(self, read: Positions) -> None:
        """Raise `PipelineError` if records that the table was built from no longer exist."""
        assert self.plan.inputs is not None
        for leaf in (each for each in self.plan.inputs.values() if each.streaming):
            changes = self.snapshot.input(leaf).changes(read.get(leaf.key))
            if changes is None or self.snapshot.input(leaf).has_retractions(read.get(leaf.key), changes):
                raise PipelineError(
                    f"{self._table.name} would be made anew, of fewer records than it was made from",
                    where=[self._table.dataset.location],
                    why=f"Its query has changed, and not all that it has read of {leaf.key} is there.",
                    fix=f"to lose what came of them, --full-refresh {self._table.name}; "
                    "else go back to the query before, or define a table beside it",
                )

    def _tick(
        self, state: TableState, inputs: Mapping[str, DataFrame], now: Positions, shards: int | None = None
    ) -> int:
        """Run the flow on changes; return their number. shards: number of shards of new state."""
        from headrace.io.files.changelog import Changelog
        from headrace.spark.run_command import run
        from headrace.spark.sources.opening import Frame

        assert self.plan.flow is not None
        state.begin(now)
        tick = state.last_tick
        result = run(
            self.plan.flow,
            self.snapshot.spark,
            sources={name: Frame(frame, every_run=True) for name, frame in inputs.items()},
            sinks={ANSWER: Changelog(state.sink)},
            checkpoint=state.checkpoint,
            shards=shards,
            keep_ticks=self._ticks_to_keep(state),
        )
        if result.stopped_by is not None:
            raise Stopped(result.stopped_by)
        assert state.last_tick > tick
        return result.rows_in


class Stopped(BaseException):
    """Exception that ends a run after a signal. signal: the signal received."""

    def __init__(self, signal: Signals) -> None:
        super().__init__(signal)
        self.signal = signal


_METHODS: Mapping[Method, Callable[[Updater], Updated]] = {
    Method.RECOMPUTE: Updater.recompute,
    Method.AFFECTED: Updater.affected,
    Method.APPEND: Updater.append,
    Method.STATELESS: Updater.stateless,
    Method.INCREMENTAL: Updater.incremental,
}
