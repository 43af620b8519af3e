"""Delivery of ticks to PostgreSQL, one transaction per tick.

The transaction begins when a tick is prepared and stays open until the engine has committed. A change that
the server rejects therefore fails the tick before it is committed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any, ClassVar

from pg8000.exceptions import DatabaseError, InterfaceError

from headrace.errors import HeadraceError, UnwritableSink
from headrace.expr.types import Row, Rows, Schema
from headrace.io.files.text_values import Unfit
from headrace.io.keyed_tables import TableKey, duplicate_key_error
from headrace.io.outbox import Batches, Delivery
from headrace.io.postgres import Server, connect, server_message
from headrace.io.postgres.column_types import (
    column_definition,
    copy_line_converter,
    quoted,
    row_parser,
    text_of,
)
from headrace.io.sink import other_rows

_TICKS = "headrace_ticks"
_CHANGES, _AFTER = "pg_temp.headrace_changes", "pg_temp.headrace_after"
_WEIGHT, _NUMBER, _STANDS = '"headrace weight"', '"headrace number"', '"headrace stands"'
_LOCK_TIMEOUT = "60s"
"""Longest wait for another transaction on the same table."""


class PostgresDelivery(Delivery):
    """Base class of PostgreSQL deliveries: the connection, the open transaction, and the tick number.

    weight: SQL expression for the weight of a row.
    """

    weight: ClassVar[str]

    def __init__(self, server: Server, sink: str, table: str, schema: str | None, rows: Schema) -> None:
        self._server = server
        self._sink = sink
        self._app = table
        prefix = "" if schema is None else quoted(schema, sink) + "."
        self._table = prefix + quoted(table, sink)
        self._ticks = prefix + quoted(_TICKS, sink)
        self._rows = rows
        self._names = [quoted(name, sink) for name in rows.names]
        self._open: Any = None
        self._in_transaction = False
        self.destination = f"{server}, table {self._table}"

    # -- the connection ---------------------------------------------------------------------

    def _connection(self) -> Any:
        if self._open is None:
            self._open = connect(self._server, self._sink)
            for setting in ("client_encoding to 'UTF8'", "datestyle to 'ISO, YMD'", "timezone to 'UTC'"):
                self._run(f"set {setting}")
            self._run(f"set lock_timeout to '{_LOCK_TIMEOUT}'")
        return self._open

    def _run(self, sql: str, *values: Any, stream: Iterator[bytes] | None = None) -> list[list[Any]]:
        """Run a statement and return its rows. Raises `UnwritableSink` with the server's reason."""
        connection = self._connection()
        try:
            if not values and stream is None:
                return connection.execute_simple(sql).rows or []
            return connection.execute_unnamed(sql, values, stream=stream).rows or []
        except (DatabaseError, InterfaceError, OSError) as error:
            if not isinstance(error, DatabaseError):
                self._hang_up()
            raise UnwritableSink(
                f"sink {self._sink!r}: PostgreSQL rejected a change to {self._table}",
                why=server_message(error),
                fix=f"correct the table or the rows; it is in {self._server}",
                sink=self._sink,
            ) from error

    def _hang_up(self) -> None:
        connection, self._open, self._in_transaction = self._open, None, False
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _begin(self) -> None:
        if self._in_transaction:
            self._end("rollback")
        was_open = self._open is not None
        try:
            self._run("begin")
        except UnwritableSink:
            if not was_open or self._open is not None:
                raise
            self._run("begin")  # The connection was lost between two ticks.
        self._in_transaction = True

    def _end(self, how: str) -> None:
        self._in_transaction = False
        self._run(how)

    def close(self) -> None:
        # The server rolls back uncommitted changes.
        self._hang_up()

    # -- ticks --------------------------------------------------------------------------------

    def last_tick(self) -> int | None:
        tables = self._run("select to_regclass($1::text), to_regclass($2::text)", self._table, self._ticks)
        if None in tables[0]:
            return None
        found = self._run(f"select tick from {self._ticks} where app = $1::text", self._app)
        return found[0][0] if found else None

    def begin(self) -> None:
        if self.last_tick() is not None:
            return
        self._begin()
        self._run(
            f"create table if not exists {self._ticks} (app text primary key, tick bigint not null, "
            "at timestamp with time zone not null default now())"
        )
        self._run(f"create table if not exists {self._table} ({', '.join(self._definitions())})")
        self._run(
            f"insert into {self._ticks} (app, tick) values ($1::text, 0) "
            "on conflict (app) do update set tick = 0",
            self._app,
        )
        self._end("commit")

    def apply(self, tick: int, batches: Batches) -> Rows | None:
        self._begin()
        try:
            found = self._run(f"select tick from {self._ticks} where app = $1::text for update", self._app)
            if found and found[0][0] >= tick:
                self._end("rollback")  # already delivered
                return None
            held = self._change(tick, batches)
            self._run(
                f"update {self._ticks} set tick = $1::bigint, at = now() where app = $2::text",
                tick,
                self._app,
            )
        except HeadraceError:
            with suppress(UnwritableSink):
                self._end("rollback")
            raise
        return held

    def finish(self, tick: int) -> None:
        if self._in_transaction:
            self._end("commit")

    def rows(self) -> Iterator[Row]:
        texts = ", ".join(text_of(f, self._sink) for f in self._rows.fields)
        parse = row_parser(self._rows)
        for found in self._run(f"select {texts}, {self.weight} from {self._table}"):
            try:
                yield parse(found)
            except Unfit as problem:
                raise other_rows(self._sink, self.destination, str(problem)) from problem

    def _copy(self, into: str, columns: list[str], batches: Iterable[Rows]) -> None:
        line: Callable[[Row], str] = copy_line_converter(self._rows)
        lines = ("".join(map(line, rows)).encode() for rows in batches)
        self._run(f"copy {into} ({', '.join(columns)}) from stdin", stream=lines)

    @abstractmethod
    def _definitions(self) -> list[str]:
        """List the column definitions and constraints for `create table`."""

    @abstractmethod
    def _change(self, tick: int, batches: Batches) -> Rows:
        """Apply a tick's changes within its transaction, and return the rows held back after it."""


class ChangelogDelivery(PostgresDelivery):
    """Delivery that appends every change, with weight and tick."""

    weight: ClassVar[str] = '"weight"'

    def _definitions(self) -> list[str]:
        columns = [column_definition(f, self._sink) for f in self._rows.fields]
        return [*columns, '"weight" bigint not null', '"tick" bigint not null']

    def _change(self, tick: int, batches: Batches) -> Rows:
        with_tick = ([(*row, tick) for row in rows] for rows in batches())
        self._copy(self._table, [*self._names, '"weight"', '"tick"'], with_tick)
        return []


class TableDelivery(PostgresDelivery):
    """Delivery that updates rows by key. The server compares changes with existing rows in all columns."""

    weight: ClassVar[str] = "1"

    def __init__(
        self, server: Server, sink: str, table: str, schema: str | None, rows: Schema, keys: TableKey
    ) -> None:
        super().__init__(server, sink, table, schema, rows)
        self._keys = keys
        self._key = [quoted(name, sink) for name in keys.key]

    def _definitions(self) -> list[str]:
        columns = [column_definition(f, self._sink) for f in self._rows.fields]
        return [*columns, f"primary key ({', '.join(self._key)})"]

    def _same(self, one: str, other: str) -> str:
        return " and ".join(f"{one}.{name} = {other}.{name}" for name in self._key)

    def _change(self, tick: int, batches: Batches) -> Rows:
        self._run(
            f"create temporary table headrace_changes on commit drop as select {', '.join(self._names)}, "
            f"0::bigint as {_WEIGHT}, 0::bigint as {_NUMBER} from {self._table} with no data"
        )
        numbers = count()
        numbered = ([(*row, next(numbers)) for row in rows] for rows in batches())
        self._copy(_CHANGES, [*self._names, _WEIGHT, _NUMBER], numbered)
        self._run(f"analyze {_CHANGES}")
        # Count a row already in the table once, so that the weight is the row's multiplicity.
        self._run(
            f"create temporary table headrace_after on commit drop as select {self._of('c', self._names)}, "
            f"c.{_WEIGHT} + (t.{self._key[0]} is not null)::int as {_WEIGHT}, c.{_NUMBER}, "
            f"t.{self._key[0]} is not null as {_STANDS} "
            f"from {_CHANGES} c left join {self._table} t on {self._equal('t', 'c')}"
        )
        self._run(f"analyze {_AFTER}")
        held = self._held(batches)
        self._check_keys(batches, held)
        self._write()
        return held

    def _of(self, table: str, names: Iterable[str]) -> str:
        return ", ".join(f"{table}.{name}" for name in names)

    def _equal(self, one: str, other: str) -> str:
        """Build an SQL condition for equality of two rows in all columns."""
        casts = self._casts()
        return " and ".join(
            f"{one}.{name}{casts.get(name, '')} is not distinct from {other}.{name}{casts.get(name, '')}"
            if name not in self._key
            else f"{one}.{name} = {other}.{name}"
            for name in self._names
        )

    def _casts(self) -> dict[str, str]:
        """Map quoted columns without an equality operator to casts that make them comparable."""
        found = self._run(
            "select attname, atttypid::regtype::text from pg_attribute "
            "where attrelid = to_regclass($1::text)",
            self._table,
        )
        casts = {"json": "::jsonb", "xml": "::text"}
        return {quoted(name, self._sink): casts[kind] for name, kind in found if kind in casts}

    def _held(self, batches: Batches) -> Rows:
        """Return changes whose rows now have negative multiplicity."""
        less = self._run(f"select {_NUMBER}, {_WEIGHT} from {_AFTER} where {_WEIGHT} < 0")
        weights: dict[int, int] = dict(map(tuple, less))
        return [(*row, weights[number]) for number, row in _picked(batches, weights.keys())]

    def _check_keys(self, batches: Batches, held: Rows) -> None:
        """Raise `DuplicateKey` if a key now has two rows."""
        replaced = f"select from {_AFTER} s where s.{_STANDS} and {self._same('s', 'a')}"
        twice = self._run(
            f"select a.{_NUMBER}, o.{_NUMBER}, a.{_WEIGHT} from {_AFTER} a left join {_AFTER} o "
            f"on {self._same('o', 'a')} and o.{_WEIGHT} > 0 and o.{_NUMBER} <> a.{_NUMBER} "
            f"where a.{_WEIGHT} > 0 and (a.{_WEIGHT} > 1 or o.{_NUMBER} is not null or exists "
            f"(select from {self._table} t where {self._same('t', 'a')} and not exists ({replaced}))) "
            "order by 1, 2 limit 1"
        )
        if twice:
            number, other, times = twice[0]
            rows = dict(_picked(batches, {number, other}))
            one = rows[number]
            there = rows[other] if other is not None else one if times > 1 else None
            raise duplicate_key_error(
                self._keys,
                one,
                f"a row that is in {self.destination}" if there is None else there,
                held=held,
            )

    def _write(self) -> None:
        names = ", ".join(self._names)
        comes = f"select from {_AFTER} n where n.{_WEIGHT} > 0 and {self._same('n', 'g')}"
        self._run(
            f"delete from {self._table} t using {_AFTER} g where g.{_STANDS} and g.{_WEIGHT} <= 0 "
            f"and {self._same('t', 'g')} and not exists ({comes})"
        )
        others = [name for name in self._names if name not in self._key]
        change = f"update set {', '.join(f'{n} = excluded.{n}' for n in others)}" if others else "nothing"
        self._run(
            f"insert into {self._table} ({names}) select {names} from {_AFTER} "
            f"where {_WEIGHT} > 0 and not {_STANDS} on conflict ({', '.join(self._key)}) do {change}"
        )


def _picked(batches: Batches, numbers: Collection[int | None]) -> Iterator[tuple[int, Row]]:
    """Yield the rows with the given numbers, without weights."""
    if not numbers:
        return
    for number, row in enumerate(row for rows in batches() for row in rows):
        if number in numbers:
            yield number, row[:-1]
