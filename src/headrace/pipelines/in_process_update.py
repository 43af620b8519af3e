"""Update of one table in this process, without Spark, by the same flow and on the same state.

It either does not begin what it cannot do, or stops where a killed run would (`NeedsSpark`): Spark goes on
from there.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from headrace.errors import BadInput, CheckpointDamaged, FlowChanged, WrongType
from headrace.pipelines.catalog import Positions, TableState
from headrace.pipelines.definitions import DatasetKind
from headrace.pipelines.deliveries import stage_here
from headrace.pipelines.errors import NeedsSpark
from headrace.pipelines.table_plan import ANSWER, Method
from headrace.pipelines.table_update import Stopped, Updated, Updater
from headrace.pipelines.weighted_rows import (
    COPY,
    MAX_BYTES,
    WEIGHT,
    changes_of_tick,
    comparable_schema,
    expand_arrow,
    may_hold_negative_zero,
    table_of_ticks,
)
from headrace.tables.version_folders import WEIGHT as SOURCE_WEIGHT

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.io.in_process import ArrowTable
    from headrace.pipelines.catalog import Position, TableEntry
    from headrace.pipelines.graph import AnalysedQuery
    from headrace.spark.prepared_flow import PreparedFlow
    from headrace.spark.stateless_tick import StatelessTick

MAX_ROWS = 500_000
"""Changed rows of a table's inputs from which on the start of Spark pays."""


@dataclass(frozen=True, slots=True)
class InProcessUpdater(Updater):
    """Maintenance of one table from a run's snapshot, in this process. Raises `NeedsSpark`."""

    def run(self) -> Updated:
        if self.plan.method is not Method.RECOMPUTE:
            self.snapshot.keep(leaf for query in self._table.queries for leaf in query.leaves)
        updated = _METHODS[self.plan.method](self)
        # What updates have cost is of those by Spark, between whose ways it decides.
        return replace(updated, entry=replace(updated.entry, costs=self._costs.to_entry()))

    def recompute(self) -> Updated:
        (query,) = self._table.queries
        before = self._begun()
        read = before.positions.get(query.query.name, {})
        if not self._is_current(self.snapshot.positions(query), read):
            raise NeedsSpark("it is recomputed by Spark")
        return Updated(before, self.plan.method, 0, self.plan.why)

    def _begun(self) -> TableEntry:
        """Return the last version, which the next one goes on from."""
        before = self._before
        if why := self._why_from_scratch(before):
            raise NeedsSpark(why)
        assert before is not None
        if not self._writer.has_project_layout(before):
            raise NeedsSpark("its columns or its files have another form")
        return before

    # -- rows computed one by one --

    def row_by_row(self) -> Updated:
        before = self._begun()
        queries = {each.query.name: each for each in self._table.queries}
        read = {name: before.positions.get(name, {}) for name in queries}
        now = {name: self._next_positions(each, read[name]) for name, each in queries.items()}
        if all(
            self._is_current(now[name], read[name]) or self._reads_nothing_new(each, now[name], read[name])
            for name, each in queries.items()
        ):
            return Updated(before, self.plan.method, 0)
        together = self._table.positions_in(before)
        if together is None:
            raise NeedsSpark("its flows have read different parts of an input")
        changes = self._changes_here(together)
        if any(map(may_hold_negative_zero, changes.values())):
            # Spark's query keeps it; a flow over rows that may be taken back does not.
            raise NeedsSpark("it reads -0.0, or floats in lists or structs")
        if self.plan.method is Method.STATELESS and all(
            self._inputs_unchanged(each, read[name]) for name, each in queries.items()
        ):
            return Updated(self._entry(before.version, now), self.plan.method, 0)
        tick = self._tick_row_by_row(changes)
        made = tick.changes.get(ANSWER)
        if self._table.dataset.kind is DatasetKind.SINK:
            return Updated(self._staged(made, now), self.plan.method, tick.rows_in)
        version = before.version if made is None else self._writer.apply_tick(made)
        gone = {k: v for k, v in before.positions.items() if self.plan.method is Method.APPEND}
        return Updated(self._entry(version, {**gone, **now}), self.plan.method, tick.rows_in)

    def _tick_row_by_row(self, changes: Mapping[str, pa.Table]) -> StatelessTick:
        """Run a flow that keeps nothing of its rows on changes."""
        from headrace.operators.endpoints import TICK_TIME
        from headrace.spark.stateless_tick import StatelessTick, run_stateless_tick

        flow = self._prepared_flow()
        if TICK_TIME not in flow.graph.sources:
            with _needing_spark_for_refusals():
                return run_stateless_tick(flow, _sources_of(changes))
        # The time of the last tick is state.
        with TemporaryDirectory(prefix="headrace-tick-") as folder:
            state = TableState(Path(folder))
            rows_in = self._run_flow(state, changes)
            ticks = state.ticks_after(0)
            made = {ANSWER: table_of_ticks(ticks)} if ticks else {}
        return StatelessTick(rows_in, made)

    def _staged(self, made: pa.Table | None, now: Mapping[str, Positions]) -> TableEntry:
        """Keep rows for a sink until the run is published."""
        columns = comparable_schema(self._table.schema)
        if columns is None:
            raise NeedsSpark("Spark writes rows with columns of these types")
        rows = columns.empty_table() if made is None else expand_arrow(changes_of_tick(made, columns))
        assert rows is not None
        version, count = stage_here(self.snapshot.catalog, self._table, rows)
        return self._entry(version, now, rows=count)

    def _reads_nothing_new(self, query: AnalysedQuery, now: Positions, read: Positions) -> bool:
        """Return whether a table of streams has no rows to read, whatever its other inputs are."""
        streams = [leaf.key for leaf in query.leaves if leaf.streaming]
        return self.plan.method is Method.APPEND and all(read.get(key) == now[key] for key in streams)

    # -- with state --

    def incremental(self) -> Updated:
        (query,) = self._table.queries
        before, name = self._begun(), query.query.name
        if not before.generation:
            raise NeedsSpark("it has no state yet")
        state = TableState(self._state_folder(before.generation))
        state.forget_before(before.tick)
        read = state.positions(before, name)
        if read is None or state.last_tick != before.tick:
            raise NeedsSpark("its state is missing, or a run died while it was made")
        now = self._next_positions(query, before.positions.get(name, {}))
        if self._is_current(now, read):
            return Updated(self._unchanged(before, now), Method.INCREMENTAL, 0)
        changes = self._changes_here(read)
        if self._inputs_unchanged(query, read):
            return Updated(self._unchanged(before, now), Method.INCREMENTAL, 0)
        state.begin(now)
        rows_in = self._run_flow(state, changes)
        ticks = state.ticks_after(before.tick)
        version = self._writer.apply_ticks(ticks) if ticks else before.version
        made = self._entry(version, {name: now}, before.generation, state.last_tick)
        return Updated(made, Method.INCREMENTAL, rows_in)

    def _unchanged(self, before: TableEntry, now: Mapping[str, Position | None]) -> TableEntry:
        """Return the entry of the last version, which now says how far its inputs and deliveries are."""
        (query,) = self._table.queries
        return self._entry(
            before.version, {query.query.name: now}, before.generation, before.tick, before.rows
        )

    # -- changes, and what a flow makes of them --

    def _changes_here(self, read: Positions) -> dict[str, pa.Table]:
        """Return what the inputs have new, by the names of the flow's sources."""
        if self.plan.only_spark or self.plan.inputs is None:
            raise NeedsSpark(self.plan.only_spark or "it has no flow")
        found: dict[str, pa.Table] = {}
        leaves = self.plan.inputs.values()
        size = sum(self.snapshot.input(leaf).bytes_changed(read.get(leaf.key)) for leaf in leaves)
        if size > MAX_BYTES:
            raise NeedsSpark(f"{size:,} bytes of files have changed, for which Spark pays")
        for source, leaf in self.plan.inputs.items():
            given, before = self.snapshot.input(leaf), read.get(leaf.key)
            if leaf.streaming:
                found[source] = self._in_order_here(source, given.unread_here(before, self._table))
            else:
                found[source] = given.changes_here(before)
        count = sum(map(len, found.values()))
        if count > MAX_ROWS:
            raise NeedsSpark(f"{count:,} rows have changed, for which Spark pays")
        return found

    def _in_order_here(self, source: str, rows: pa.Table) -> pa.Table:
        """Return rows of a stream in the order of the time of its watermark, if it has one."""
        import polars as pl

        if (column := self.plan.time_columns.get(source)) is None:
            return rows
        times: Any = pl.from_arrow(rows.select([column]))
        in_order = times.with_row_index(COPY).sort(column, maintain_order=True)
        return rows.take(in_order.get_column(COPY).to_arrow())

    def _prepared_flow(self) -> PreparedFlow:
        try:
            flow = self.plan.prepared()
        except Exception as error:  # What unpickles a part may raise any.
            raise NeedsSpark(f"its kept flow cannot be read: {type(error).__name__}") from None
        assert flow is not None
        return flow

    def _run_flow(self, state: TableState, changes: Mapping[str, pa.Table]) -> int:
        """Run the flow on changes, in one tick; return their number."""
        from headrace.io.files.changelog import Changelog
        from headrace.spark.run_command import run

        with _needing_spark_for_refusals():
            result = run(
                self._prepared_flow(),
                way="here",
                sources=_sources_of(changes),
                sinks={ANSWER: Changelog(state.sink)},
                checkpoint=state.checkpoint,
                keep_ticks=self._ticks_to_keep(state),
            )
        if result.stopped_by is not None:
            raise Stopped(result.stopped_by)
        return result.rows_in


def _sources_of(changes: Mapping[str, pa.Table]) -> dict[str, ArrowTable]:
    from headrace.io.in_process import ArrowTable

    return {
        name: ArrowTable(
            table.rename_columns([SOURCE_WEIGHT if c == WEIGHT else c for c in table.column_names])
        )
        for name, table in changes.items()
    }


@contextmanager
def _needing_spark_for_refusals() -> Generator[None]:
    """Raise `NeedsSpark` for what a flow in this process refuses to go on with."""
    try:
        yield
    except (FlowChanged, CheckpointDamaged, WrongType, BadInput) as error:
        raise NeedsSpark(error.what) from None


_METHODS: Mapping[Method, Callable[[InProcessUpdater], Updated]] = {
    Method.RECOMPUTE: InProcessUpdater.recompute,
    Method.AFFECTED: InProcessUpdater.recompute,
    Method.APPEND: InProcessUpdater.row_by_row,
    Method.STATELESS: InProcessUpdater.row_by_row,
    Method.INCREMENTAL: InProcessUpdater.incremental,
}
