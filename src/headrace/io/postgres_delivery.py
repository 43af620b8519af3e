"""Delivery of ticks to PostgreSQL, one transaction per tick, and the columns and values of its tables.

The transaction begins when a tick is prepared and stays open until the engine has committed. A change that
the server rejects therefore fails the tick before it is committed.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import timedelta
from decimal import Decimal
from functools import singledispatch
from itertools import count
from typing import Any, ClassVar

from pg8000.exceptions import DatabaseError, InterfaceError

from headrace.errors import BadInput, HeadraceError, UnwritableSink
from headrace.expr.types import (
    BoolType,
    BytesType,
    DataType,
    DateType,
    DecimalType,
    Field,
    Float32Type,
    Float64Type,
    FloatingType,
    Int8Type,
    Int16Type,
    Int32Type,
    Int64Type,
    IntervalType,
    ListType,
    MapType,
    Row,
    Rows,
    Schema,
    StrType,
    StructType,
    TimestampNtzType,
    TimestampType,
)
from headrace.io.files.json_values import json_decoder, json_encoder
from headrace.io.files.text_values import UnfitValue, parser_of
from headrace.io.keyed_tables import TableKey, duplicate_key_error
from headrace.io.outbox import Batches, Delivery
from headrace.io.postgres import Server, connect, server_message
from headrace.io.sink import other_rows

_LONGEST = 63
"""Limit on the bytes of a name. PostgreSQL truncates longer ones silently, so two could become one."""


def quoted(name: str, sink: str) -> str:
    """Quote a name for SQL. Raises `BadInput` for an invalid name."""
    if not name or "\0" in name or len(name.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise BadInput(
            f"sink {sink!r}: {name!r} cannot be a name in PostgreSQL",
            why=f"a name has 1 to {_LONGEST} bytes, none of them NUL",
            fix="rename the column in a select before the sink, or give another table",
            sink=sink,
        )
    return '"' + name.replace('"', '""') + '"'


@singledispatch
def sql_type(data_type: DataType) -> str:
    """Map a column type to its SQL type. Lists and nested rows are JSON."""
    raise TypeError(data_type)


for _class, _name in {
    BoolType: "boolean",
    Int8Type: "smallint",
    Int16Type: "smallint",
    Int32Type: "integer",
    Int64Type: "bigint",
    Float64Type: "double precision",
    Float32Type: "real",
    StrType: "text",
    BytesType: "bytea",
    DateType: "date",
    TimestampType: "timestamp with time zone",
    TimestampNtzType: "timestamp without time zone",
    IntervalType: "interval",
    ListType: "jsonb",
    MapType: "jsonb",
    StructType: "jsonb",
}.items():
    sql_type.register(_class, lambda _type, _name=_name: _name)


@sql_type.register
def _(data_type: DecimalType) -> str:
    return f"numeric({data_type.precision}, {data_type.scale})"


def column_definition(column: Field, sink: str) -> str:
    return f"{quoted(column.name, sink)} {sql_type(column.type)}{'' if column.nullable else ' not null'}"


# --- values in the format of COPY --------------------------------------------------------

Text = Callable[[Any], str]


@singledispatch
def copy_converter(data_type: DataType) -> Text:
    """Build a converter from non-null values to the text format of COPY."""
    return str


@copy_converter.register
def _(data_type: BoolType) -> Text:
    return lambda value: "t" if value else "f"


@copy_converter.register
def _(data_type: FloatingType) -> Text:
    return repr  # PostgreSQL accepts inf and nan.


@copy_converter.register
def _(data_type: StrType) -> Text:
    return escape_copy_text


@copy_converter.register
def _(data_type: BytesType) -> Text:
    return lambda value: "\\\\x" + value.hex()


@copy_converter.register
def _(data_type: IntervalType) -> Text:
    return _interval_text


def _interval_text(value: timedelta) -> str:
    """Return days and a time, each with its sign. PostgreSQL before 15 reads a number only up to 32 bits."""
    size, sign = abs(value), "-" if value < timedelta() else ""
    minutes, seconds = divmod(size.seconds, 60)
    time = f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{size.microseconds:06d}"
    return f"{sign}{size.days} days {sign}{time}"


@copy_converter.register(DateType)
@copy_converter.register(TimestampType)
@copy_converter.register(TimestampNtzType)
def _(data_type: DataType) -> Text:
    return lambda value: value.isoformat()


@copy_converter.register(ListType)
@copy_converter.register(MapType)
@copy_converter.register(StructType)
def _(data_type: DataType) -> Text:
    plain = json_encoder(data_type)
    return lambda value: escape_copy_text(json.dumps(plain(value), ensure_ascii=False))


def escape_copy_text(text: str) -> str:
    """Escape characters that would end a COPY field or line."""
    return text.replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r")


def copy_line_converter(schema: Schema) -> Callable[[tuple[Any, ...]], str]:
    """Build a converter from rows of this schema, followed by integers, to COPY lines."""
    parts = [copy_converter(f.type) for f in schema.fields]
    width = len(parts)

    def line(row: tuple[Any, ...]) -> str:
        fields = ["\\N" if value is None else part(value) for part, value in zip(parts, row)]
        fields.extend(map(str, row[width:]))
        return "\t".join(fields) + "\n"

    return line


# --- values as texts of the server -------------------------------------------------------


def text_of(column: Field, sink: str) -> str:
    """Write the SQL expression for a column's value as text."""
    name = quoted(column.name, sink)
    if isinstance(column.type, IntervalType):
        return f"(extract(epoch from {name}) * 1000000)::bigint::text"
    return f"encode({name}, 'hex')" if isinstance(column.type, BytesType) else f"{name}::text"


def _from_text(data_type: DataType) -> Callable[[str], Any]:
    """Build a parser from such texts to internal values. It raises `UnfitValue`."""
    if isinstance(data_type, BytesType):
        return bytes.fromhex
    if isinstance(data_type, IntervalType):
        return lambda text: timedelta(0, 0, int(text))
    if isinstance(data_type, ListType | MapType | StructType):
        decode = json_decoder(data_type)
        return lambda text: decode(json.loads(text, parse_float=Decimal))
    return parser_of(data_type)


def row_parser(schema: Schema) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Build a parser of rows of such texts, followed by other values. It raises `UnfitValue`."""
    parts = [(f, _from_text(f.type)) for f in schema.fields]

    def parsed(column: Field, text: str | None, parse: Callable[[str], Any]) -> Any:
        if text is None and not column.nullable:
            raise UnfitValue(f"column {column.name!r} has a null")
        try:
            return None if text is None else parse(text)
        except UnfitValue as problem:
            raise UnfitValue(f"column {column.name!r}: {problem}") from None

    def row(texts: Sequence[Any]) -> tuple[Any, ...]:
        values = (parsed(f, text, parse) for (f, parse), text in zip(parts, texts))
        return (*values, *texts[len(parts) :])

    return row


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
            except UnfitValue as problem:
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
