"""Ticks of a dataflow on its engine: changes in and changes out, in columns if they are many.

A tick has a bounded number of rows, so that a replica's other work has its turn. Rows that are many go
through the engine in columns as far as its operators can. Their state lies in arrangements then, which later
ticks of few rows read and write row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from headrace.compute.protocol.commands import Dataflow
from headrace.compute.protocol.responses import Counted
from headrace.compute.protocol.row_batch import WEIGHT, NotColumnar, RowBatch, is_columnar
from headrace.compute.replica.building import passes_through
from headrace.compute.replica.feeds import weighted_rows
from headrace.engine.engine import Engine
from headrace.engine.runtime_library import LARGEST_TICK
from headrace.expr.types import Schema
from headrace.expr.value_keys import with_representatives
from headrace.flow.flow import Flow

if TYPE_CHECKING:
    from headrace.columns.columns import Columns


T = TypeVar("T")

LEAST = 16
MOST = LARGEST_TICK
COLUMNS = 512
"""Number of a source's rows from which a tick is given them in columns."""

EngineRows: TypeAlias = list[tuple[Any, ...]]
"""Rows in the form engines use: with the weight last, or without one for append-only inputs."""


class DataflowEndpoints(Protocol):
    """Names of sources and sinks, and whether each is append-only."""

    @property
    def source_append(self) -> Mapping[str, bool]: ...
    @property
    def sink_append(self) -> Mapping[str, bool]: ...


class TickExecutor(Protocol):
    @property
    def program(self) -> DataflowEndpoints: ...

    def tick_rows(self, inputs: Mapping[str, EngineRows]) -> Mapping[str, EngineRows]:
        """Run one tick of the rows of each source; return the rows of each sink."""
        ...

    def state_bytes(self) -> int:
        """Estimate the memory of the state, not counting external storage."""
        ...


MakeTickExecutor: TypeAlias = Callable[[Dataflow, Flow], TickExecutor]
ChooseTicking: TypeAlias = Callable[[Dataflow, Flow], MakeTickExecutor | None]


def create_undivided_engine(dataflow: Dataflow, flow: Flow) -> TickExecutor:
    """Create an undivided engine for a dataflow."""
    return Engine(flow, columnar_rows=COLUMNS)


class TickSizer:
    """Number of rows that a tick processes in a few milliseconds, learnt from earlier ticks.

    most:  the current number of rows. least: bound of it.
    short: seconds below which ticks grow. Those above `long` shrink.
    """

    def __init__(self, most: int, least: int, short: float, long: float) -> None:
        self.most = most
        self._least, self._short, self._long = least, short, long

    def split(self, rows: Sequence[T]) -> Iterator[Sequence[T]]:
        """Split rows into parts of at most `most`, re-read for each part."""
        at = 0
        while at < len(rows):
            part = rows[at : at + self.most]
            at += len(part)
            yield part

    def adapt_to(self, rows: int, seconds: float) -> None:
        """Adapt to the duration of a tick."""
        if seconds > self._long and rows > self._least:
            self.most = max(self._least, min(self.most, rows) // 2)
        elif seconds < self._short and rows >= self.most:
            self.most = min(MOST, self.most * 2)


class Ticking:
    """Engine of a dataflow that takes and returns changes.

    timer: seconds, by which the sizes of ticks are chosen. wanted: sinks whose changes are returned.
    """

    def __init__(
        self, engine: TickExecutor, flow: Flow, timer: Callable[[], float], wanted: Collection[str]
    ) -> None:
        self.engine = engine
        self._timer = timer
        self._wanted = wanted
        graph = flow.graph()
        self._sources = {name: graph.nodes[node].schema for name, node in graph.sources.items()}
        self._sinks = {name: graph.nodes[node].schema for name, node in graph.sinks.items()}
        self._pace = TickSizer(512, LEAST, 0.002, 0.005)
        # What a tick in columns costs depends little on its rows.
        self._columns_pace = TickSizer(MOST, COLUMNS, 0.05, 0.12)
        self._passed: dict[str, list[str]] = {}
        # An engine that keeps a share of the rows has to see them.
        undivided = isinstance(engine, Engine)
        if undivided and passes_through(flow) and all(map(is_columnar, self._sources.values())):
            above = {sink: graph.nodes[node].inputs[0] for sink, node in graph.sinks.items()}
            for name, node in graph.sources.items():
                self._passed[name] = [sink for sink in above if above[sink] == node]

    @cached_property
    def _columnar(self) -> frozenset[str]:
        """Sources whose rows the engine takes in columns."""
        if not isinstance(self.engine, Engine) or not self.engine.takes_columns:
            return frozenset()
        from headrace.columns.columns import can_hold

        return frozenset(name for name, schema in self._sources.items() if can_hold(schema))

    def split(self, source: str, rows: Sequence[Counted]) -> Iterator[Sequence[Counted]]:
        """Divide rows of a source into ticks."""
        return (self._columns_pace if self._takes_columns(source, rows) else self._pace).split(rows)

    def is_small(self, inputs: Mapping[str, Sequence[Counted]]) -> bool:
        """Return whether the rows of all sources fit into one tick."""
        return sum(map(len, inputs.values())) <= self._pace.most

    def _takes_columns(self, source: str, rows: Sequence[Counted]) -> bool:
        return len(rows) >= COLUMNS and (source in self._passed or source in self._columnar)

    def tick(self, inputs: Mapping[str, Sequence[Counted]]) -> dict[str, Sequence[Counted]]:
        """Run a tick on the changes of each source; return each sink's changes, which may cancel out."""
        engine = self.engine
        append = engine.program.source_append
        given: dict[str, Any] = {}
        for name, changes in inputs.items():
            if self._takes_columns(name, changes):
                with suppress(NotColumnar):
                    changes = self._batch(name, changes)
                    if name in self._passed and len(inputs) == 1:
                        return dict.fromkeys(self._passed[name], changes)
                    given[name] = _engine_columns(changes, append[name])
                    continue
            given[name] = weighted_rows(changes, append[name], name)
        began = self._timer()
        made = engine.tick_columns(given) if isinstance(engine, Engine) else engine.tick_rows(given)
        in_columns = any(not isinstance(rows, list) for rows in given.values())
        pace = self._columns_pace if in_columns else self._pace
        pace.adapt_to(sum(map(len, given.values())), self._timer() - began)
        sink_append = engine.program.sink_append
        return {
            sink: counted_rows(rows, self._sinks[sink], sink_append[sink])
            for sink, rows in made.items()
            if sink in self._wanted
        }

    def _batch(self, source: str, changes: Sequence[Counted]) -> RowBatch:
        if isinstance(changes, RowBatch):
            return changes
        return RowBatch.of_rows(self._sources[source], changes)


def _engine_columns(batch: RowBatch, append: bool) -> Columns:
    """Convert changes to the engine's columns. Raises `NotColumnar` for a retraction on an append edge."""
    from headrace.columns.column_stream import each_copy
    from headrace.columns.columns import Columns

    if not append:
        return Columns(batch.schema, False, batch.frame)
    if cast("int", batch.frame[WEIGHT].min()) < 0:
        raise NotColumnar
    return Columns(batch.schema, True, each_copy(batch.frame))


def counted_rows(rows: EngineRows | Columns, schema: Schema, append: bool) -> Sequence[Counted]:
    """Convert engine output to counted plain rows, since user functions may return their own row classes.

    Exports count rows by equality. Those of tables have one zero: the engine sees to it.
    """
    if not isinstance(rows, list):
        return _counted_columns(rows, schema)
    if append:
        shown = with_representatives(rows, schema)
        return [(row if row.__class__ is tuple else tuple(row), 1) for row in shown]
    return [(row[:-1], row[-1]) for row in rows]


def _counted_columns(rows: Columns, schema: Schema) -> RowBatch:
    if not rows.append:
        return RowBatch(schema, rows.frame)
    import polars as pl

    columns = [rows.frame[str(at)] for at in range(len(schema.fields))]
    columns = [column + 0.0 if column.dtype.is_float() else column for column in columns]
    ones = pl.Series(WEIGHT, [1], dtype=pl.Int64()).new_from_index(0, len(rows))
    return RowBatch(schema, pl.DataFrame([*columns, ones]))
