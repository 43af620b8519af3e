"""Delivery of ticks to Delta tables, one version per tick."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from headrace.errors import UnwritableSink
from headrace.expr.types import INT64, Field, Schema
from headrace.io.arrow import arrow_schema, rows_to_table, table_to_rows
from headrace.io.delivery.atomic_files import TICK
from headrace.io.delivery.outbox import Batches, Delivery
from headrace.io.delivery.table_keys import TableKey, net_change
from headrace.io.delta.protocol import FEED, OPERATION
from headrace.io.sink import other_rows
from headrace.io.source import WEIGHT, Row, Rows

_compute: Any = pc  # generated at import time, unseen by type checkers


class DeltaDelivery(Delivery):
    """Base class of Delta deliveries: the table, and the tick number in its log."""

    feed = False

    def __init__(self, sink: str, path: str, app: str, options: Mapping[str, str], rows: Schema) -> None:
        self.destination = path
        self._sink = sink
        self._app = app
        self._options = dict(options)
        self._rows = rows
        self._ready: tuple[int, Callable[[], object]] | None = None

    @contextmanager
    def _reporting(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DeltaError, pa.ArrowException, OSError, ValueError) as error:
            raise UnwritableSink(
                f"sink {self._sink!r}: the Delta table at {self.destination} {what}",
                why=str(error),
                fix="correct the table, or give another path",
                sink=self._sink,
                path=self.destination,
            ) from error

    def _table(self) -> deltalake.DeltaTable:
        return deltalake.DeltaTable(self.destination, storage_options=self._options)

    def last_tick(self) -> int | None:
        with self._reporting("cannot be read"):
            if not deltalake.DeltaTable.is_deltatable(self.destination, storage_options=self._options):
                return None
            return self._table().transaction_version(self._app)

    def begin(self) -> None:
        schema = arrow_schema(self.columns())
        with self._reporting("cannot be made"):
            if not deltalake.DeltaTable.is_deltatable(self.destination, storage_options=self._options):
                deltalake.DeltaTable.create(
                    self.destination,
                    schema=deltalake.Schema.from_arrow(schema),
                    configuration={FEED: "true"} if self.feed else None,
                    storage_options=self._options,
                    commit_properties=self._properties(0),
                )
                return
            found = pa.schema(self._table().schema().to_arrow())
        self._check(schema, found)
        if self.last_tick() is None:
            with self._reporting("cannot be changed"):
                holds_rows = self._table().count() > 0
                self._append(0, schema, iter(()), [Transaction(self._adopted, 1)] * holds_rows)

    def _check(self, wanted: pa.Schema, found: pa.Schema) -> None:
        def kinds(schema: pa.Schema) -> dict[str, str]:
            return {
                f.name: str(deltalake.Schema.from_arrow(pa.schema([f.with_nullable(True)]))) for f in schema
            }

        if kinds(wanted) != kinds(found):
            raise UnwritableSink(
                f"sink {self._sink!r}: the Delta table at {self.destination} has other columns",
                why=f"it has {', '.join(f'{f.name}: {f.type}' for f in found)}; "
                f"the sink has {', '.join(f'{f.name}: {f.type}' for f in wanted)}",
                fix="give another path, or select the table's columns before the sink",
                sink=self._sink,
                path=self.destination,
            )

    def apply(self, tick: int, batches: Batches) -> Rows | None:
        # deltalake has no open transactions, so the change waits for `finish`.
        self._ready = None
        with self._reporting("cannot be read"):
            if (self.last_tick() or 0) >= tick:
                return None
            change, held = self._change(tick, batches)
        self._ready = tick, change
        return held

    def finish(self, tick: int) -> None:
        if self._ready is not None and self._ready[0] == tick:
            with self._reporting("refuses a tick"):
                if (self.last_tick() or 0) < tick:
                    self._ready[1]()
            self._ready = None

    def close(self) -> None:
        self._ready = None

    @property
    def _adopted(self) -> str:
        """Application id by which the log marks a table that had rows before its first tick."""
        return f"{self._app}/adopted"

    def _properties(self, tick: int, notes: Iterable[Transaction] = ()) -> CommitProperties:
        return CommitProperties(app_transactions=[Transaction(self._app, tick), *notes])

    def _append(
        self,
        tick: int,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        notes: Iterable[Transaction] = (),
    ) -> None:
        write_deltalake(
            self._table(),
            pa.RecordBatchReader.from_batches(schema, batches),
            mode="append",
            commit_properties=self._properties(tick, notes),
        )

    def columns(self) -> Schema:
        """List the columns of the table."""
        return self._rows

    def rows(self) -> Iterator[Row]:
        table = self._table()
        if table.transaction_version(self._adopted) is not None:
            raise other_rows(
                self._sink, self.destination, "It had rows before its first tick, which are not this flow's."
            )
        self._check(arrow_schema(self.columns()), pa.schema(table.schema().to_arrow()))
        wanted = arrow_schema(self.columns())
        with self._reporting("cannot be read"):
            for batch in pa.RecordBatchReader.from_stream(table.scan()):
                found = pa.Table.from_batches([batch]).select(wanted.names).cast(wanted)
                yield from map(self._change_of, table_to_rows(found, self.columns()))

    @abstractmethod
    def _change_of(self, row: Row) -> Row:
        """Return a row of the table as a change, weight last."""

    @abstractmethod
    def _change(self, tick: int, batches: Batches) -> tuple[Callable[[], object], Rows]:
        """Return the action that creates the tick's version, and the rows held back after it."""


class ChangelogDelivery(DeltaDelivery):
    """Delivery that appends every change, with weight and tick."""

    def columns(self) -> Schema:
        return Schema((*self._rows.fields, Field(WEIGHT, INT64), Field(TICK, INT64)))

    def _change_of(self, row: Row) -> Row:
        return row[:-1]

    def _change(self, tick: int, batches: Batches) -> tuple[Callable[[], object], Rows]:
        columns = self.columns()

        def append() -> None:
            made = (
                batch
                for rows in batches()
                for batch in rows_to_table([(*row, tick) for row in rows], columns).to_batches()
            )
            self._append(tick, arrow_schema(columns), made)

        return append, []


class TableDelivery(DeltaDelivery):
    """Delivery that merges rows by key. It first compares existing rows of the tick's keys in all columns."""

    def __init__(self, *where: Any, keys: TableKey, feed: bool) -> None:
        super().__init__(*where)
        self._keys = keys
        self.feed = feed

    def _change_of(self, row: Row) -> Row:
        return (*row, 1)

    def _change(self, tick: int, batches: Batches) -> tuple[Callable[[], object], Rows]:
        changes = {tuple(row): weight for rows in batches() for *row, weight in rows}
        table = self._table()
        # Other writers' rows may have existed before this run began.
        adopted = table.transaction_version(self._adopted) is not None
        after = net_change(self._keys, self._there(table, changes), changes, replaces=adopted)
        return lambda: self._merge(tick, after.rows), after.held

    def _there(self, table: deltalake.DeltaTable, changes: Iterable[Row]) -> Iterator[Row]:
        """Yield the table's rows that share a key with the changes."""
        key = self._keys.of()
        keys = set(map(key, changes))
        if not keys:
            return
        wanted = arrow_schema(self._rows)
        first = self._keys.key[0]
        firsts = pa.array({found[0] for found in keys}, wanted.field(first).type)
        stream = pa.RecordBatchReader.from_stream(table.scan(predicate=self._range(keys)))
        for batch in stream:
            found = pa.Table.from_batches([batch]).select(self._rows.names).cast(wanted)
            found = found.filter(_compute.is_in(found.column(first), firsts))
            yield from (row for row in table_to_rows(found, self._rows) if key(row) in keys)

    def _range(self, keys: set[Row]) -> str | None:
        """Build a predicate that prunes files by the range of the first key column, for integers and text."""
        firsts = [key[0] for key in keys]
        if not all(type(first) is int or type(first) is str for first in firsts):
            return None
        column = quoted(self._keys.key[0])
        low, high = (
            str(bound) if isinstance(bound, int) else "'" + bound.replace("'", "''") + "'"
            for bound in (min(firsts), max(firsts))
        )
        return f"{column} between {low} and {high}"

    def _merge(self, tick: int, rows: Rows) -> None:
        if not rows:  # An empty merge would not record the tick.
            self._append(tick, arrow_schema(self._rows), iter(()))
            return
        columns = Schema((*self._rows.fields, Field(OPERATION, INT64)))
        made = rows_to_table(rows, columns).to_batches()
        operation = f"s.{quoted(OPERATION)}"
        values = {quoted(name): f"s.{quoted(name)}" for name in self._rows.names}
        merge = self._table().merge(
            source=pa.RecordBatchReader.from_batches(arrow_schema(columns), made),
            predicate=" and ".join(f"t.{quoted(name)} = s.{quoted(name)}" for name in self._keys.key),
            source_alias="s",
            target_alias="t",
            commit_properties=self._properties(tick),
        )
        merge = merge.when_matched_delete(f"{operation} < 0")
        merge = merge.when_matched_update(values, f"{operation} > 0")
        merge.when_not_matched_insert(values, f"{operation} > 0").execute()


def quoted(name: str) -> str:
    """Quote a column name for SQL."""
    return '"' + name.replace('"', '""') + '"'
