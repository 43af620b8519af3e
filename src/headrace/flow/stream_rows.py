"""Stream methods that work row by row.

Each method imports the operator that it adds, so that flows load only the operators they use.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

from headrace.errors import BadRow, SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.constructors import col, lit
from headrace.expr.tree import Column, Expr
from headrace.expr.types import INT64, AnyType, BoolType, Field, ListType, MapType, Schema, with_article
from headrace.flow.stream_base import (
    Append,
    B,
    Changes,
    G,
    NoOrder,
    O,
    Ordered,
    StreamBase,
    T_co,
    check_reason,
)
from headrace.operators.column_arguments import check_expression, render_argument, result_schema
from headrace.operators.map import Map
from headrace.operators.rows import Filter, Partition, Select

if TYPE_CHECKING:
    from headrace.flow.keyed_tables import OnMisfitName
    from headrace.flow.stream import Stream
    from headrace.flow.stream_base import AnyStream, Output
    from headrace.operators.time_spans import GivenSpan

U = TypeVar("U")
Tag = TypeVar("Tag", bound=Hashable)


class StreamRows(StreamBase[T_co, B, G, O]):
    """Stateless, non-blocking stream methods."""

    __slots__ = ()

    def upsert(
        self,
        by: Expr | str | Sequence[Expr | str],
        *,
        row: Expr | None = None,
        deleted: Expr | None = None,
        before: Expr | None = None,
        sequence: Expr | str | None = None,
        on_misfit: OnMisfitName = "error",
        tombstones: GivenSpan | None = None,
        name: str | None = None,
    ) -> Stream[Any, B, Changes, NoOrder]:
        """Hold the latest row of each key (`operators.keyed_tables.upsert`). Rows of this stream are records.

        by:        columns of the key.
        row:       the row that a record sets, a struct; by default the record. Null deletes the key's row.
        deleted:   condition of records that delete the row of their key.
        before:    the row that a record replaces, a struct like `row`, or null where it does not say.
        sequence:  column that orders the records of a key, in whatever order they come; by default they count
                   in the order in which they come. Not together with `before`. With the sequence of a row, a
                   deletion is of an older row if there is one, unless it names that row; called
                   `_commit_version`, sequences are commits, whose deletions are always of older rows.
        on_misfit: what becomes of a record whose `before` is not the row held, or whose row differs from that
                   of a record with the same sequence. "error": `RecordMisfit` is raised. "dead_letter": it is
                   left out; `misfits()` has it. "trust_key": it is applied; of records with the same
                   sequence, the one with the greatest row.
        tombstones: how far behind the highest sequence of all keys the one of a deleted key is kept: a time
                   ("7 d") if sequences are times, else a number; by default for good. A record that is older
                   than a tombstone which is forgotten counts as the first one of its key.

        Raises `WrongType` for arguments that do not fit the records.
        """
        from headrace.flow.keyed_tables import add_upsert

        return add_upsert(
            self,
            by,
            row=row,
            deleted=deleted,
            before=before,
            sequence=sequence,
            on_misfit=on_misfit,
            tombstones=tombstones,
            name=name,
            location=SourceLocation.of_caller(),
        )

    def history(
        self,
        by: Expr | str | Sequence[Expr | str],
        *,
        sequence: Expr | str,
        row: Expr | None = None,
        deleted: Expr | None = None,
        track: Sequence[str] | None = None,
        on_misfit: OnMisfitName = "error",
    ) -> Stream[Any, B, Changes, NoOrder]:
        """Hold all versions of each key's row, SCD type 2 (see `operators.keyed_tables.history`).

        A version has the columns of its row, `start_at`, the sequence of the record that made it, and
        `end_at`, that of the record that replaced or deleted it, null while it holds. Records may come in any
        order. The versions without an end are the rows of `upsert`.

        track: columns of which a change makes a new version; by default all but `sequence`. Others are shown
               as the last record of the version has them.
        by, sequence, row, deleted: as in `upsert`.
        on_misfit: "error" or "trust_key", as in `upsert`, for records of a key with one sequence and
               different rows.

        Raises `WrongType` for arguments that do not fit the records.
        """
        from headrace.flow.keyed_tables import add_history

        location = SourceLocation.of_caller()
        return add_history(
            self,
            by,
            sequence=sequence,
            row=row,
            deleted=deleted,
            track=track,
            on_misfit=on_misfit,
            location=location,
        )

    def misfits(self, *, name: str | None = None) -> Stream[Any, B, Append, Ordered]:
        """Return the records that `upsert(on_misfit="dead_letter")` leaves out, with the reason in `misfit`.

        Records of a table with a key have the columns `key`, `before` and `row` (structs, the last two may be
        null), `sequence` if the table has one, and `place`: `file` and `row`, or null.

        Raises `BadFlow` for any other stream (see `operators.keyed_tables.upsert`).
        """
        from headrace.flow.keyed_tables import add_misfits

        return add_misfits(self, name, SourceLocation.of_caller())

    def sample_by_hash(
        self,
        fraction: float,
        *,
        by: Expr | str | Sequence[Expr | str] = (),
        seed: int = 0,
        name: str | None = None,
    ) -> Stream[T_co, B, G, O]:
        """Keep a repeatable sample of the rows (see `operators.sample_by_hash`).

        fraction: expected share of the rows, from 0 to 1.
        by:       columns whose equal values are all in the sample, or not at all; by default whole rows.
        seed:     other seeds choose other values.

        Raises `WrongType` for another fraction, for a seed that is no 64-bit integer, and for a column that
        cannot be hashed; `UnknownColumn`.
        """
        from headrace.operators.sample_by_hash import SampleByHash

        location = SourceLocation.of_caller()
        if type(fraction) not in (int, float) or not 0 <= fraction <= 1:
            raise WrongType(
                f"sample_by_hash needs a fraction from 0 to 1, got {render_argument(fraction)}",
                where=[location],
                fix="a share: sample_by_hash(0.1) keeps about a tenth",
            )
        if type(seed) is not int or not -(2**63) <= seed < 2**63:
            raise WrongType(
                f"sample_by_hash needs a whole number as seed, got {render_argument(seed)}",
                where=[location],
                fix="sample_by_hash(0.1, seed=1)",
            )
        given = list(by) if isinstance(by, list | tuple) else [cast("Expr | str", by)]
        hashed = tuple(Column(b) if isinstance(b, str) else b for b in given or self._schema.names)
        for expr in hashed:
            check_expression("sample_by_hash", expr, location)
        operator = SampleByHash(hashed, float(fraction), seed)
        check(operator.condition, self._schema)
        return self._add(operator, self._schema, name, location)

    def filter_map(
        self,
        function: Callable[[T_co], U | None],
        *,
        returns: type[U] | None = None,
        name: str | None = None,
    ) -> Stream[U, B, G, O]:
        """Map each row to at most one row; None drops it (see `operators.map`).

        The row type is `returns`, or the function's return annotation without None.
        """
        from headrace.operators.map import FilterMap

        location = SourceLocation.of_caller()
        schema = result_schema("filter_map", function, returns, location, many=False, maybe=True)
        return self._add(FilterMap(function), schema, name, location)

    def flatten(self, column: Column | str | None = None, *, name: str | None = None) -> Stream[Any, B, G, O]:
        """Map each row to the items of its list: `explode` of the list alone."""
        return self._explode("flatten", column, name=name)

    def explode(
        self,
        column: Column | str | None = None,
        *,
        into: str | None = None,
        position: str | None = None,
        outer: bool = False,
        name: str | None = None,
    ) -> Stream[Any, B, G, O]:
        """Map each row to one row per element of a list (see `operators.explode`).

        column:   the list, which is replaced by its elements; optional if rows have one column. A column of
                  type any may also hold lists.
        into:     name of the elements' column; by default that of the list.
        position: name of an additional column with the element's position in the list, from 0.
        outer:    keep a row whose list is null or empty once, with null for element and position.

        Raises `WrongType` if the column is not a list or a name is taken, `UnknownColumn` for an unknown
        column.
        """
        return self._explode("explode", column, into, position, outer=outer, name=name)

    def _explode(
        self,
        method: str,
        column: Column | str | None,
        into: str | None = None,
        position: str | None = None,
        *,
        outer: bool = False,
        name: str | None,
    ) -> Stream[Any, B, G, O]:
        from headrace.operators.explode import Explode

        location = SourceLocation.of_caller()
        at = self._list_column(column, location, method)
        operator = Explode(at, self._schema.names[at] if into is None else into, position, outer)
        fields = operator.output_columns(self._schema.fields)
        names = [field.name for field in fields]
        taken = next((name for name in names if names.count(name) > 1), None)
        if taken is not None:
            raise WrongType(
                f"explode makes two columns {taken!r}",
                where=[location],
                fix='give the element or its position another name: into="...", position="..."',
                column=taken,
            )
        schema = Schema(fields, None, scalar=self._schema.scalar and position is None and into is None)
        return self._add(operator, schema, name, location)

    def _list_column(self, column: Column | str | None, location: SourceLocation, method: str) -> int:
        if column is None and len(self._schema.fields) > 1:
            raise WrongType(
                f"{method} needs to know which column is the list",
                where=[location],
                why=f"The rows have {', '.join(self._schema.names)}.",
                fix=f'{method}("items")',
            )
        if not isinstance(column, Column | str | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(
                f"{method} needs a column, got {render_argument(column)}",
                where=[location],
                fix=f'{method}("items")',
            )
        named = self._schema.names[0] if column is None else column
        expr = named if isinstance(named, Column) else Column(named)
        found = check(expr, self._schema).type
        if not isinstance(found, ListType | AnyType):
            raise WrongType(
                f"{method} needs a list, and {expr} is {found}",
                where=[location],
                fix=f"explode hr.functions.map_entries({expr}), in a column of its own"
                if isinstance(found, MapType)
                else "flat_map() makes rows of any value",
                column=expr.name,
            )
        at = self._schema.position(expr.name)
        assert at is not None
        return at

    def inspect(
        self, function: Callable[[T_co], object], *, name: str | None = None
    ) -> Stream[T_co, B, G, O]:
        """Call a function on each row, and pass all rows on (see `operators.map`)."""
        from headrace.operators.map import Inspect

        location = SourceLocation.of_caller()
        if isinstance(function, Expr) or not callable(function):
            raise WrongType(
                f"inspect needs a function, got {render_argument(function)}",
                where=[location],
                fix="inspect(print)",
            )
        return self._add(Inspect(function), self._schema, name, location)

    def tee(self, count: int) -> tuple[Stream[T_co, B, G, O], ...]:
        """Return `count` references to this stream, so that each use can have its own name.

        Any stream may be read any number of times without this.
        """
        location = SourceLocation.of_caller()
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongType(
                f"tee needs a number of streams, got {render_argument(count)}", where=[location], fix="tee(2)"
            )
        return (cast("Stream[T_co, B, G, O]", self),) * count

    @overload
    def partition(
        self, by: Expr | Callable[[T_co], int], ports: int, *, name: str | None = None
    ) -> tuple[Stream[T_co, B, G, O], ...]: ...
    @overload
    def partition(
        self, by: Expr | Callable[[T_co], str], ports: Sequence[str], *, name: str | None = None
    ) -> dict[str, Stream[T_co, B, G, O]]: ...
    def partition(
        self,
        by: Expr | Callable[[T_co], int | str],
        ports: int | Sequence[str],
        *,
        name: str | None = None,
    ) -> tuple[Stream[T_co, B, G, O], ...] | dict[str, Stream[T_co, B, G, O]]:
        """Split into streams, with each row in exactly one (see `operators.rows`).

        by:    determines the port of a row.
        ports: number of ports, which are then called 0, 1, ...; or their names. With two ports, `by` may be a
               condition: false is 0, and true is 1.

        A row for any other port stops the tick with `UnknownPort`.
        """
        location = SourceLocation.of_caller()
        if isinstance(ports, int) and not isinstance(ports, bool):
            streams = _split("partition", self, by, range(ports), name, location)
            return cast("tuple[Stream[T_co, B, G, O], ...]", tuple(streams.values()))
        tags = cast("Sequence[str]", ports)
        return cast("dict[str, Stream[T_co, B, G, O]]", _split("partition", self, by, tags, name, location))

    def demux(
        self, by: Expr | Callable[[T_co], Tag], tags: Iterable[Tag], *, name: str | None = None
    ) -> dict[Tag, Stream[T_co, B, G, O]]:
        """Split into one stream per tag, by the value of `by` (see `operators.rows`).

        tags: all possible tags: an `Enum` class, or values. For an enum, an expression must return a member's
              `value`, a function the member itself.

        A row with another tag stops the tick with `UnknownPort`.
        """
        location = SourceLocation.of_caller()
        return cast("dict[Tag, Stream[T_co, B, G, O]]", _split("demux", self, by, tags, name, location))

    def unzip(self) -> tuple[Stream[Any, B, G, O], Stream[Any, B, G, O]]:
        """Split pairs into a stream of first values and one of second values.

        Pairs are rows of two columns, or values of two items in a stream of type any. Raises `WrongType` for
        rows that are not pairs; a value that is not a pair stops the tick with `BadRow`.
        """
        location = SourceLocation.of_caller()
        fields = self._schema.fields
        if self._schema.scalar and isinstance(fields[0].type, AnyType):
            parts = (Map(_first), Map(_second))
            return cast("Any", tuple(self._add(part, self._schema, None, location) for part in parts))
        if len(fields) != 2:
            raise WrongType(
                f"unzip needs pairs, and rows have {len(fields)} column{'' if len(fields) == 1 else 's'}",
                where=[location],
                fix="select() the two columns before",
            )
        halves = [Schema((Field("value", f.type, f.nullable),), None, scalar=True) for f in fields]
        return cast(
            "Any",
            tuple(
                self._add(Select((("value", Column(f.name)),)), half, None, location)
                for f, half in zip(fields, halves, strict=True)
            ),
        )

    def assume_ordered(
        self, *, nondet: str | None = None, name: str | None = None
    ) -> Stream[T_co, B, G, Ordered]:
        """Declare the order of arrival meaningful (see `operators.order`).

        nondet: reason why results may depend on the cut into ticks; not needed if the ticks are given.
        """
        from headrace.operators.order import AssumeOrdered

        location = SourceLocation.of_caller()
        check_reason(nondet, location)
        return self._add(AssumeOrdered(nondet), self._schema, name, location)


def _first(pair: object) -> object:
    return _pair(pair)[0]


def _second(pair: object) -> object:
    return _pair(pair)[1]


def _pair(value: object) -> tuple[object, object]:
    pair: Any = value
    if isinstance(pair, tuple) and len(cast("tuple[object, ...]", pair)) == 2:
        return cast("tuple[object, object]", pair)
    found = type(value).__name__
    raise BadRow(
        f"unzip needs pairs, got {found} {render_argument(value)}",
        fix="filter() other values out before, or map() each to a tuple of two",
        expected="a tuple of two",
        found=found,
    )


# -- partitions: a number per port, and a filter for the rows of each --------------------------


def _split(
    what: str,
    stream: Output,
    by: Expr | Callable[..., object],
    ports: Iterable[Hashable],
    name: str | None,
    location: SourceLocation,
) -> dict[Hashable, AnyStream]:
    """Split into one stream per tag of `ports`, for operator `what`. Raises `WrongType`."""
    tags = _different(what, ports, location)
    values = _values(what, stream.schema, by, tags, location)
    schema = stream.schema
    port = "port"
    while schema.position(port) is not None:
        port = f"_{port}"
    numbered = Schema((*schema.fields, Field(port, INT64, False)))
    rows = stream.flow.add(Partition(by, values), numbered, (stream,), name, location)
    columns = tuple((n, Column(n)) for n in schema.names)
    streams: dict[Hashable, AnyStream] = {}
    for at, tag in enumerate(tags):
        own = rows.flow.add(Filter(col[port] == lit(at)), numbered, (rows,), None, location)
        streams[tag] = own.flow.add(Select(columns), schema, (own,), None, location)
    return streams


def _different(what: str, ports: object, location: SourceLocation) -> tuple[Hashable, ...]:
    """Check that tags are given, and are distinct."""
    given: object = ports
    if isinstance(ports, Iterable) and not isinstance(ports, str):
        listed = given = list(cast("Iterable[object]", ports))
        if listed and all(isinstance(tag, Hashable) for tag in listed) and len(set(listed)) == len(listed):
            return cast("tuple[Hashable, ...]", tuple(listed))
    raise WrongType(
        f"{what} needs different ports, got {render_argument(given)}",
        where=[location],
        why="Each row goes to exactly one of them.",
        fix=f'{what}(hr.col.kind, ["open", "closed"])',
    )


def _values(
    what: str, schema: Schema, by: object, tags: Sequence[Hashable], location: SourceLocation
) -> tuple[Hashable, ...]:
    """Return the values of `by` for each tag."""
    if not isinstance(by, Expr) and not callable(by):
        raise WrongType(
            f"{what} needs an expression or a function, got {render_argument(by)}",
            where=[location],
            fix="hr.col.kind",
        )
    if not isinstance(by, Expr):
        return tuple(tags)
    values = tuple(tag.value if isinstance(tag, Enum) else tag for tag in tags)
    found = check(by, schema).type
    if isinstance(found, BoolType) and values == (0, 1):
        return (False, True)
    for value in values:
        if not _may_be(by, value, schema):
            raise WrongType(
                f"{what} by {by}: {value!r} is not {with_article(found)}",
                where=[location],
                fix="ports are values that the expression may have",
            )
    return values


def _may_be(by: Expr, value: object, schema: Schema) -> bool:
    try:
        check(by == lit(value), schema)
    except WrongType:
        return False
    return True
