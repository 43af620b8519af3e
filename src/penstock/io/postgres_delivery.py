"""The transaction of a tick in PostgreSQL.

It begins when a tick is prepared and stays open while the engine commits, so
that what the server refuses fails the tick before it counts.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from pg8000.exceptions import DatabaseError, InterfaceError

from penstock.errors import PenstockError, UnwritableSink
from penstock.expr.types import Schema
from penstock.io.keyed import COMES, GOES, two_rows
from penstock.io.outbox import Batches, Delivery
from penstock.io.postgres_server import Server, connect, reason
from penstock.io.postgres_types import column_definition, copy_line, quoted

_TICKS = "penstock_ticks"
_CHANGES = "pg_temp.penstock_changes"
_OPERATION = '"penstock operation"'
_LOCK_TIMEOUT = "60s"
"""How long another transaction on the same table may hold us up."""


class PostgresDelivery(Delivery):
    """What both forms have in common: the connection, the transaction, the number of the tick."""

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
        self.place = f"{server}, table {self._table}"

    # -- the connection ---------------------------------------------------------------------

    def _connection(self) -> Any:
        if self._open is None:
            self._open = connect(self._server, self._sink)
            for setting in ("client_encoding to 'UTF8'", "datestyle to 'ISO, YMD'", "timezone to 'UTC'"):
                self._run(f"set {setting}")
            self._run(f"set lock_timeout to '{_LOCK_TIMEOUT}'")
        return self._open

    def _run(self, sql: str, *values: Any, stream: Iterator[bytes] | None = None) -> list[list[Any]]:
        """The rows of a statement. Raises `UnwritableSink` with what the server said."""
        connection = self._connection()
        try:
            if not values and stream is None:
                return connection.execute_simple(sql).rows or []
            return connection.execute_unnamed(sql, values, stream=stream).rows or []
        except (DatabaseError, InterfaceError, OSError) as error:
            if not isinstance(error, DatabaseError):
                self._hang_up()
            raise UnwritableSink(
                f"sink {self._sink!r}: PostgreSQL refuses a change of {self._table}",
                why=reason(error),
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
            self._run("begin")  # the connection had been lost between two ticks
        self._in_transaction = True

    def _end(self, how: str) -> None:
        self._in_transaction = False
        self._run(how)

    def close(self) -> None:
        # The server takes back what is not committed.
        self._hang_up()

    # -- ticks --------------------------------------------------------------------------------

    def last_tick(self) -> int | None:
        there = self._run("select to_regclass($1::text), to_regclass($2::text)", self._table, self._ticks)
        if None in there[0]:
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

    def apply(self, tick: int, batches: Batches) -> None:
        self._begin()
        try:
            found = self._run(f"select tick from {self._ticks} where app = $1::text for update", self._app)
            if found and found[0][0] >= tick:
                self._end("rollback")  # it has arrived
                return
            self._change(tick, batches)
            self._run(
                f"update {self._ticks} set tick = $1::bigint, at = now() where app = $2::text",
                tick,
                self._app,
            )
        except PenstockError:
            with suppress(UnwritableSink):
                self._end("rollback")
            raise

    def finish(self, tick: int) -> None:
        if self._in_transaction:
            self._end("commit")

    def _copy(self, into: str, columns: list[str], batches: Batches, *more: int) -> None:
        line: Callable[[tuple[Any, ...]], str] = copy_line(self._rows)
        lines = ("".join(line((*row, *more)) for row in rows).encode() for rows in batches())
        self._run(f"copy {into} ({', '.join(columns)}) from stdin", stream=lines)

    @abstractmethod
    def _definitions(self) -> list[str]:
        """What stands between the brackets of `create table`."""

    @abstractmethod
    def _change(self, tick: int, batches: Batches) -> None:
        """Make the changes of a tick, within its transaction."""


class ChangelogDelivery(PostgresDelivery):
    def _definitions(self) -> list[str]:
        columns = [column_definition(f, self._sink) for f in self._rows.fields]
        return [*columns, '"weight" bigint not null', '"tick" bigint not null']

    def _change(self, tick: int, batches: Batches) -> None:
        self._copy(self._table, [*self._names, '"weight"', '"tick"'], batches, tick)


class TableDelivery(PostgresDelivery):
    def __init__(
        self, server: Server, sink: str, table: str, schema: str | None, rows: Schema, key: tuple[str, ...]
    ) -> None:
        super().__init__(server, sink, table, schema, rows)
        self._key_names = key
        self._key = [quoted(name, sink) for name in key]

    def _definitions(self) -> list[str]:
        columns = [column_definition(f, self._sink) for f in self._rows.fields]
        return [*columns, f"primary key ({', '.join(self._key)})"]

    def _same(self, one: str, other: str) -> str:
        return " and ".join(f"{one}.{name} = {other}.{name}" for name in self._key)

    def _change(self, tick: int, batches: Batches) -> None:
        names, table = ", ".join(self._names), self._table
        self._run(
            f"create temporary table penstock_changes on commit drop as "
            f"select {names}, 0::bigint as {_OPERATION} from {table} with no data"
        )
        self._copy(_CHANGES, [*self._names, _OPERATION], batches)
        there = f"join {table} t on {self._same('t', 'c')} where c.{_OPERATION} = {COMES} limit 1"
        shown = ", ".join(f"t.{name}::text" for name in self._key)
        twice = self._run(f"select {shown} from {_CHANGES} c {there}")
        if twice:
            raise two_rows(self._sink, self._key_names, twice[0], f"a row that is in {self.place}")
        self._run(
            f"delete from {table} t using {_CHANGES} c "
            f"where c.{_OPERATION} = {GOES} and {self._same('t', 'c')}"
        )
        others = [name for name in self._names if name not in self._key]
        change = f"update set {', '.join(f'{n} = excluded.{n}' for n in others)}" if others else "nothing"
        self._run(
            f"insert into {table} ({names}) select {names} from {_CHANGES} c where c.{_OPERATION} > 0 "
            f"on conflict ({', '.join(self._key)}) do {change}"
        )
