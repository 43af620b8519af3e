"""Delivery of ticks to tables that keep a log of commits, one version per tick.

The commit of a tick carries its number as a transaction of the sink's application, so a tick that is
delivered again is recognised and skipped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import UnwritableSink
from headrace.expr.types import INT64, Field, Schema
from headrace.io.arrow import arrow_schema, rows_to_table, table_to_rows
from headrace.io.delivery.outbox import Batches, Delivery
from headrace.io.delivery.table_keys import TableKey, net_change
from headrace.io.sink import other_rows
from headrace.io.source import WEIGHT, Row, Rows
from headrace.tables.version_folders import TICK
from headrace.tables.versioned_table import OPERATION, VersionedTable, quote_column

_compute: Any = pc  # generated at import time, unseen by type checkers


class TableDelivery(Delivery):
    """Base class of deliveries to a versioned table: its columns, and the tick number in its log.

    app: application under which the log has the ticks. properties: of a table that is created.
    """

    def __init__(
        self,
        sink: str,
        table: VersionedTable,
        app: str,
        rows: Schema,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        self.destination = table.location
        self._sink = sink
        self._table = table
        self._app = app
        self._rows = rows
        self._properties = properties
        self._ready: tuple[int, Callable[[], object]] | None = None

    def last_tick(self) -> int | None:
        with self._table.reporting("cannot be read"):
            return self._table.transaction(self._app) if self._table.exists() else None

    def begin(self) -> None:
        schema = arrow_schema(self.columns())
        with self._table.reporting("cannot be made"):
            if not self._table.exists():
                self._table.create(schema, properties=self._properties, transactions={self._app: 0})
                return
            found = self._table.schema()
        self._check(schema, found)
        if self.last_tick() is None:
            with self._table.reporting("cannot be changed"):
                holds_rows = any(batch.num_rows for batch in self._table.scan())
                self._append(0, schema, iter(()), {self._adopted: 1} if holds_rows else {})

    def _check(self, wanted: pa.Schema, found: pa.Schema) -> None:
        if dict(self._table.stored_types(wanted)) != dict(self._table.stored_types(found)):
            raise UnwritableSink(
                f"sink {self._sink!r}: the Delta table at {self.destination} has other columns",
                why=f"it has {', '.join(f'{f.name}: {f.type}' for f in found)}; "
                f"the sink has {', '.join(f'{f.name}: {f.type}' for f in wanted)}",
                fix="give another path, or select the table's columns before the sink",
                sink=self._sink,
                path=self.destination,
            )

    def apply(self, tick: int, batches: Batches) -> Rows | None:
        # There are no open transactions, so the change waits for `finish`.
        self._ready = None
        with self._table.reporting("cannot be read"):
            if (self.last_tick() or 0) >= tick:
                return None
            change, held = self._change(tick, batches)
        self._ready = tick, change
        return held

    def finish(self, tick: int) -> None:
        if self._ready is not None and self._ready[0] == tick:
            with self._table.reporting("refuses a tick"):
                if (self.last_tick() or 0) < tick:
                    self._ready[1]()
            self._ready = None

    def close(self) -> None:
        self._ready = None

    @property
    def _adopted(self) -> str:
        """Application id by which the log marks a table that had rows before its first tick."""
        return f"{self._app}/adopted"

    def _append(
        self,
        tick: int,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        notes: Mapping[str, int] | None = None,
    ) -> None:
        rows = pa.RecordBatchReader.from_batches(schema, batches)
        self._table.append(rows, {self._app: tick, **(notes or {})})

    def columns(self) -> Schema:
        """List the columns of the table."""
        return self._rows

    def rows(self) -> Iterator[Row]:
        if self._table.transaction(self._adopted) is not None:
            raise other_rows(
                self._sink, self.destination, "It had rows before its first tick, which are not this flow's."
            )
        wanted = arrow_schema(self.columns())
        self._check(wanted, self._table.schema())
        with self._table.reporting("cannot be read"):
            for batch in self._table.scan():
                found = pa.Table.from_batches([batch]).select(wanted.names).cast(wanted)
                yield from map(self._change_of, table_to_rows(found, self.columns()))

    @abstractmethod
    def _change_of(self, row: Row) -> Row:
        """Return a row of the table as a change, weight last."""

    @abstractmethod
    def _change(self, tick: int, batches: Batches) -> tuple[Callable[[], object], Rows]:
        """Return the action that creates the tick's version, and the rows held back after it."""


class AppendDelivery(TableDelivery):
    """Delivery of a changelog: appends every change, with weight and tick."""

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


class MergeDelivery(TableDelivery):
    """Delivery of a table: merges rows by key. It first compares existing rows of the tick's keys."""

    def __init__(self, *where: Any, keys: TableKey) -> None:
        super().__init__(*where)
        self._keys = keys

    def _change_of(self, row: Row) -> Row:
        return (*row, 1)

    def _change(self, tick: int, batches: Batches) -> tuple[Callable[[], object], Rows]:
        changes = {tuple(row): weight for rows in batches() for *row, weight in rows}
        # Other writers' rows may have existed before this run began.
        adopted = self._table.transaction(self._adopted) is not None
        after = net_change(self._keys, self._there(changes), changes, replaces=adopted)
        return lambda: self._merge(tick, after.rows), after.held

    def _there(self, changes: Iterable[Row]) -> Iterator[Row]:
        """Yield the table's rows that share a key with the changes."""
        key = self._keys.of()
        keys = set(map(key, changes))
        if not keys:
            return
        wanted = arrow_schema(self._rows)
        first = self._keys.key[0]
        firsts = pa.array({found[0] for found in keys}, wanted.field(first).type)
        for batch in self._table.scan(where=self._range(keys)):
            found = pa.Table.from_batches([batch]).select(self._rows.names).cast(wanted)
            found = found.filter(_compute.is_in(found.column(first), firsts))
            yield from (row for row in table_to_rows(found, self._rows) if key(row) in keys)

    def _range(self, keys: set[Row]) -> str | None:
        """Build a predicate that prunes files by the range of the first key column, for integers and text."""
        firsts = [key[0] for key in keys]
        if not all(type(first) is int or type(first) is str for first in firsts):
            return None
        column = quote_column(self._keys.key[0])
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
        source = pa.RecordBatchReader.from_batches(arrow_schema(columns), made)
        self._table.merge(source, self._rows.names, {self._app: tick}, self._keys.key)
