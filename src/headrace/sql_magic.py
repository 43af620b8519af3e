"""The cell magic `%%headrace_sql`: a query over a notebook's variables, kept up to date.

Spark plans the query; the flow runs in this process. See `headrace_sql` for its meaning.
"""

from __future__ import annotations

import builtins
import shlex
from argparse import ArgumentError, ArgumentParser
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from keyword import iskeyword
from typing import TYPE_CHECKING, Any, NoReturn

from headrace.columns.columns import is_frame
from headrace.engine.change import SinkChanges
from headrace.engine.engine import Engine
from headrace.errors import BadInput, HeadraceError, UnknownRowType
from headrace.expr.row_classes import schema_of
from headrace.expr.types import Schema
from headrace.flow.flow import Flow
from headrace.flow.stream_base import StreamBase
from headrace.queries.catalyst_plan import QueryText, QuotedLocation
from headrace.queries.query import plan_flow
from headrace.requirements import require_package

if TYPE_CHECKING:
    import pyarrow as pa


_MAGIC = "%%headrace_sql"
_USAGE = f"{_MAGIC} [NAME] --table TABLE[=VARIABLE] --source TABLE[=VARIABLE]"


def load_ipython_extension(ipython: Any) -> None:
    """Register the cell magic `%%headrace_sql`. Called by `%load_ext headrace`."""

    def headrace_sql(line: str, cell: str) -> SinkChanges | Flow:
        query = _CellQuery.parse(line, cell, ipython.user_ns)
        if query.streams:
            return query.add_to_flow()
        engine, answer = query.start()
        if query.name is not None:
            ipython.push({query.name: engine})
        return answer

    headrace_sql.__doc__ = MEANING
    ipython.register_magic_function(headrace_sql, "cell", "headrace_sql")


MEANING = """Run a SQL query of Spark over variables of the notebook, and keep its answer up to date.

    %%headrace_sql [NAME] --table TABLE[=VARIABLE] --source TABLE[=VARIABLE]
    SELECT ...

--table, --source: a table of the query, by default the variable of the same name. Rows of a --table may be
retracted later, those of a --source are only added. The variable is

- a list of rows of a row class (`NamedTuple` or dataclass), or a frame of Polars, pandas or pyarrow. The
  query becomes a flow, which runs a first tick on these rows, and the cell shows the answer;
- a row class, for a table without rows yet;
- a stream. Then all are streams of one flow: the query becomes sink NAME of that flow, and the cell shows the
  flow.

NAME: the variable that gets the engine, so that `NAME.tick(orders=[...])` runs further ticks and
`NAME.watch("NAME")` shows the answer live; also the name of the sink, "answer" by default.

A cell that runs again makes a new engine, or replaces the sink.

Needs `headrace[spark]`. Raises `BadInput` for the line and the variables, `UnsupportedQuery` for a query that
Spark refuses or that has no incremental form.
"""


class _LineParser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadInput(f"{_MAGIC}: {message}", fix=_USAGE)


@dataclass(frozen=True, slots=True)
class _CellQuery:
    """Query of a cell.

    append: tables whose rows are only added. given: what stands for each table. old: value of the variable
    NAME before.
    """

    name: str | None
    text: str
    append: frozenset[str]
    given: Mapping[str, Any]
    location: QuotedLocation
    old: object = None

    @classmethod
    def parse(cls, line: str, cell: str, variables: Mapping[str, Any]) -> _CellQuery:
        """Parse a cell. Raises `BadInput` for an invalid line and for unknown variables."""
        location = QuotedLocation(_MAGIC, 1, quoted=f"{_MAGIC} {line}".rstrip())
        parser = _LineParser(prog=_MAGIC, add_help=False, allow_abbrev=False, exit_on_error=False)
        parser.add_argument("name", nargs="?")
        parser.add_argument("--table", action="append", default=[])
        parser.add_argument("--source", action="append", default=[])
        try:
            options = parser.parse_args(shlex.split(line))
        except (ArgumentError, ValueError, BadInput) as error:
            reason = error.what if isinstance(error, BadInput) else f"{_MAGIC}: {error}"
            raise BadInput(reason, where=[location], fix=_USAGE) from None
        tables: list[str] = [*options.table, *options.source]
        if not tables:
            raise BadInput("the query has no tables", where=[location], fix=_USAGE)
        names = [each.partition("=")[0] for each in tables]
        if len({*names}) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise BadInput(f"table {twice!r} is given twice", where=[location], fix="give it once")
        for name in names if options.name is None else [options.name, *names]:
            if not name.isidentifier() or iskeyword(name):
                raise BadInput(f"{name!r} cannot be a name", where=[location], fix=_USAGE)
        given = {
            table: _found(variable or table, variables, location)
            for table, _, variable in (each.partition("=") for each in tables)
        }
        append = frozenset(names[len(options.table) :])
        old = variables.get(options.name) if options.name else None
        return cls(options.name, cell.strip("\n"), append, given, location, old)

    @property
    def streams(self) -> dict[str, StreamBase[Any]]:
        """Streams among the given variables. Raises `BadInput` if they are mixed with anything else."""
        found = {table: each for table, each in self.given.items() if isinstance(each, StreamBase)}
        others = self.given.keys() - found.keys()
        if found and (others or len({each.flow for each in found.values()}) > 1):
            raise BadInput(
                f"the query mixes stream {next(iter(found))!r} with rows, or with streams of another flow",
                where=[self.location],
                why="A flow is fed as a whole, by its sources.",
                fix="give streams of one flow only, or rows and frames only",
            )
        return found

    @property
    def sink(self) -> str:
        return self.name or "answer"

    def add_to_flow(self) -> Flow:
        """Add the query as a sink to the flow of its streams, and return the flow."""
        require_package(_MAGIC, "pyspark", "spark", self.location)
        return self._plan({table: each.schema for table, each in self.streams.items()}, self.streams)

    def start(self) -> tuple[Engine, SinkChanges]:
        """Create an engine for the query, and run a first tick on the given rows."""
        require_package(_MAGIC, "pyspark", "spark", self.location)
        if self.name is not None and hasattr(builtins, self.name):
            raise BadInput(
                f"a variable {self.name!r} would hide Python's own {self.name}",
                where=[self.location],
                fix="choose another NAME",
            )
        if self.old is not None and not isinstance(self.old, Engine):
            raise BadInput(
                f"the engine would replace your variable {self.name!r}, of type {type(self.old).__name__}",
                where=[self.location],
                fix="choose another NAME",
            )
        given = {t: self._columns(t, each) if is_frame(each) else each for t, each in self.given.items()}
        schemas = {table: self._schema(table, each) for table, each in given.items()}
        engine = Engine(self._plan(schemas, {}))
        rows = {table: each for table, each in given.items() if not isinstance(each, type)}
        return engine, engine.tick(**rows)[self.sink]

    def _plan(self, schemas: Mapping[str, Schema], streams: Mapping[str, Any]) -> Flow:
        text = QueryText(self.text, _MAGIC, 2)
        return plan_flow(text, schemas, self.append, self.sink, None, self.location, streams)

    def _schema(self, table: str, given: Any) -> Schema:
        if is_frame(given):
            return _parsed(given.schema)
        row_type = given if isinstance(given, type) else _type_of_rows(given)
        # The place of an `UnknownRowType` would be a line of the notebook's own code.
        with suppress(UnknownRowType):
            if row_type is not None:
                return schema_of(row_type)
        raise BadInput(
            f"the columns of table {table!r} are unknown",
            where=[self.location],
            why=f"It is {_kind(given)}.",
            fix="give a list of rows of a row class, a frame, a stream, or the row class itself",
        )

    def _columns(self, table: str, frame: Any) -> pa.Table:
        """Convert a frame to types that flows support. Raises `BadInput`, naming an unsupported column."""
        import pyarrow as pa

        at, fields, columns = "it", list[pa.Field](), list[pa.ChunkedArray]()
        try:
            given = _arrow_table(frame)
            for field, column in zip(given.schema, given.columns, strict=True):
                at = f"column {field.name!r}"
                if field.name in (known.name for known in fields):
                    raise ValueError("two columns have this name")
                fields.append(field.with_type(_flow_type(field.type)))
                columns.append(_whole_microseconds(column).cast(fields[-1].type))
                _parsed(pa.schema(fields[-1:]))
        except (pa.ArrowException, HeadraceError, TypeError, ValueError) as error:
            raise BadInput(
                f"table {table!r}: {at} cannot be read",
                where=[self.location],
                why=error.what if isinstance(error, HeadraceError) else str(error),
                fix="convert the column, or select others; each needs one type and a name of its own",
            ) from error
        return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _parsed(columns: pa.Schema) -> Schema:
    """Convert columns to a schema of Spark's types. Raises `UnsupportedQuery` or `TypeError` for others."""
    from pyspark.errors import PySparkTypeError
    from pyspark.sql.pandas.types import from_arrow_schema

    from headrace.queries.catalyst_plan import parse_schema

    try:
        return parse_schema(from_arrow_schema(columns).jsonValue())
    except PySparkTypeError as error:
        raise TypeError(str(error)) from error


def _kind(given: Any) -> str:
    kind, row_type = type(given).__name__, _type_of_rows(given)
    if row_type is not None:
        return f"a {kind} of {row_type.__name__}"
    if isinstance(given, type):
        return f"the class {given.__name__}"
    return f"an empty {kind}" if isinstance(given, Sequence) else f"of type {kind}"


def _type_of_rows(given: object) -> type[Any] | None:
    """Return the type of the first row; None if there are no rows."""
    if isinstance(given, Sequence) and not isinstance(given, str | bytes) and len(given):  # pyright: ignore[reportUnknownArgumentType]
        return type(given[0])  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return None


def _found(variable: str, variables: Mapping[str, Any], location: QuotedLocation) -> Any:
    if variable not in variables:
        raise BadInput(
            f"the notebook has no variable {variable!r}",
            where=[location],
            fix="run the cell that assigns it, or write --table TABLE=VARIABLE",
        )
    return variables[variable]


def _arrow_table(frame: Any) -> pa.Table:
    import pyarrow as pa

    if hasattr(frame, "to_arrow"):
        return frame.to_arrow()
    # The index of pandas is no column, as in ticks.
    return pa.Table.from_pandas(frame, preserve_index=False) if hasattr(frame, "iloc") else pa.table(frame)


def _whole_microseconds(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Round times down to whole microseconds, as for files."""
    import pyarrow as pa
    import pyarrow.compute as pc

    compute: Any = pc
    if not pa.types.is_timestamp(column.type) or column.type.unit != "ns":
        return column
    return compute.floor_temporal(column.cast(pa.timestamp("ns", "UTC")), unit="microsecond")


def _flow_type(kind: pa.DataType) -> pa.DataType:
    """Return the flow column type that can hold all values of an Arrow type."""
    import pyarrow as pa

    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")  # without a zone, times are in UTC
    if pa.types.is_floating(kind):
        return pa.float64()
    if pa.types.is_int8(kind) or pa.types.is_int16(kind):
        return pa.int32()
    return pa.int64() if pa.types.is_unsigned_integer(kind) else kind
