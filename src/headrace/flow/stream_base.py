"""Base classes of streams and signals: outputs of operators, row type checks, markers of facts, and misuse.

The public methods of streams are grouped by theme in `stream.py` and the `stream_*.py` beside it; each theme
is a class over the base here, and `Stream` combines them all.

Type markers state facts of streams for type checkers. A subclass is a stronger guarantee, and the parameters
of `Stream` are covariant, so a `Bounded` stream is accepted wherever an `Unbounded` one is. The union of two
markers is their meet: `Bounded | Unbounded` is not `Bounded`. The build-time check (`headrace.analysis`) is
authoritative; type checkers just report earlier.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, Protocol, TypeAlias

from typing_extensions import TypeVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.expression_errors import MethodGuesses
from headrace.expr.row_classes import computed_schema
from headrace.expr.tree import Expr
from headrace.expr.types import Field, Schema
from headrace.operators.column_arguments import render_argument, with_row_class
from headrace.operators.lifetime import check_reason as check_reason
from headrace.shown import Shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from headrace.graph.node import Node, Operator

AnyStream: TypeAlias = Any
"""`Stream` whose type parameters are declared by the method that adds its operator."""


class FlowBuilder(Protocol):
    """Interface of a flow under construction for streams and signals (`headrace.flow.flow.Flow`)."""

    name: str
    times: list[Any]
    """Cache of `headrace.flow.timed_columns.times_of`, per node."""

    @property
    def nodes(self) -> tuple[Node, ...]: ...

    def node(self, node_id: int) -> Node: ...

    def add(
        self,
        operator: Operator,
        schema: Schema,
        inputs: Sequence[Output],
        name: str | None,
        location: SourceLocation,
    ) -> AnyStream: ...

    def sink(self, name: str, stream: Any) -> None: ...


class Output(Shown):
    """Output of one operator of one flow."""

    __slots__ = ("_flow", "_id", "_schema")

    def __init__(self, flow: FlowBuilder, node: int, schema: Schema) -> None:
        self._flow = flow
        self._id = node
        self._schema = schema

    @property
    def flow(self) -> FlowBuilder:
        """Flow that contains the output."""
        return self._flow

    @property
    def node_id(self) -> int:
        """Id of the node that produces the output."""
        return self._id

    @property
    def schema(self) -> Schema:
        """Columns and types of the rows, or the type of a signal's values."""
        return self._schema

    def output_of(self, node: int) -> Output:
        """Return the output of another node of the same flow."""
        return Output(self._flow, node, self._flow.node(node).schema)


_ROWS = "run the flow: Engine(flow).tick(source=[rows]) returns the changes of each sink"
_ELSEWHERE = {
    "where": "did you mean .filter(...)?",
    "withColumn": "did you mean .with_columns(name=...)?",
    "assign": "did you mean .with_columns(name=...)?",
    "order_by": "did you mean .sort_by(...) or .top_k(...)?",
    "orderBy": "did you mean .sort_by(...) or .top_k(...)?",
    "merge": "did you mean .join(...)?",
    "agg": "first .group_by(...), without keys for all rows",
    "drop_duplicates": "did you mean .distinct()? By some columns: .group_by(...).agg(...)",
    "dropDuplicates": "did you mean .distinct()? By some columns: .group_by(...).agg(...)",
    "drop": "select the columns that stay: .select(...)",
    "rename": "select them under other names: .select(other=hr.col.one)",
    "sink": 'flow.sink("name", stream)',
    **dict.fromkeys(("collect", "show", "head", "count", "to_pandas", "toPandas", "rows", "print"), _ROWS),
}


_AGGREGATE = "aggregate it: .agg(total=hr.sum(hr.col.price), rows=hr.count())"


_OF_COLUMNS = "operators are for columns, within .select(...) or .filter(...): hr.col.price > 10"
_OF_STREAMS = {
    **dict.fromkeys("+|", "did you mean .union(...), which has the rows of both?"),
    "-": "did you mean .difference(...), which leaves out the rows of the other?",
    "&": "did you mean .join(...)?",
}


def _no_operator(sign: str) -> Callable[[Any, object], NoReturn]:
    def refuse(self: Any, other: object) -> NoReturn:
        raise WrongType(
            f"{self._what} has no operator {sign}: {self!r}",
            where=[SourceLocation.of_caller()],
            fix=_OF_STREAMS.get(sign, _OF_COLUMNS) if isinstance(other, RowMisuse) else _OF_COLUMNS,
        )

    return refuse


class RowMisuse(MethodGuesses):
    """Base of streams and groups: refuses Python's built-in functions and statements."""

    __slots__ = ()
    _rows_fix: ClassVar[str]
    _index_fix: ClassVar[str]

    def __bool__(self) -> NoReturn:
        raise self._unknown_rows("has no truth value")

    def __iter__(self) -> NoReturn:
        raise self._unknown_rows("cannot be iterated")

    def __len__(self) -> NoReturn:
        raise self._unknown_rows("has no length")

    def __getitem__(self, key: object) -> NoReturn:
        raise WrongType(
            f"{self._what} cannot be indexed: {self!r}",
            where=[SourceLocation.of_caller()],
            fix=self._index_fix,
        )

    if not TYPE_CHECKING:  # type checkers find them by themselves

        def __setitem__(self, key: object, value: object) -> NoReturn:
            raise WrongType(
                f"{self._what} takes no columns by assignment: {self!r}",
                where=[SourceLocation.of_caller()],
                why="An operator makes another stream, and leaves this one as it is.",
                fix=f"stream = stream.with_columns({key}=hr.col.price * 2)",
            )

        __add__, __radd__, __or__, __sub__, __and__ = (
            _no_operator(sign) for sign in ("+", "+", "|", "-", "&")
        )
        __mul__, __truediv__, __lt__, __le__, __gt__, __ge__ = (
            _no_operator(sign) for sign in ("*", "/", "<", "<=", ">", ">=")
        )

    def _unknown_rows(self, problem: str) -> WrongType:
        return WrongType(
            f"{self._what} {problem} while the flow is being built: {self!r}",
            where=[SourceLocation.of_caller()],
            why="It has no rows until the flow runs.",
            fix=self._rows_fix,
        )


class StreamMisuse(RowMisuse):
    """Base of streams."""

    __slots__ = ()
    _what = "a stream"
    _elsewhere = _ELSEWHERE
    _other_fix = f"its rows: {_ROWS}"
    _rows_fix = _ROWS
    _index_fix = 'columns are hr.col.price, within .filter(...) or .select(...); .select("price") keeps one'
    _schema: Schema

    def _missing_method(self, name: str) -> AttributeError:
        if not name.startswith("_") and self._schema.position(name) is not None:
            return self._unknown_method(name, f"the column is hr.col.{name}, as in .select(hr.col.{name})")
        return super()._missing_method(name)


class GroupMisuse(RowMisuse):
    """Base of groups."""

    __slots__ = ()
    _what = "a group"
    _elsewhere: ClassVar = {
        **{each: f".agg({each}=hr.{each}(hr.col.price))" for each in ("sum", "mean", "min", "max", "median")},
        **dict.fromkeys(("avg", "average"), ".agg(mean=hr.mean(hr.col.price))"),
        **dict.fromkeys(("count", "size"), ".agg(rows=hr.count())"),
    }
    _other_fix = _AGGREGATE
    _rows_fix = _index_fix = _AGGREGATE


class Unbounded:
    """Marker for streams that may never end."""


class Bounded(Unbounded):
    """Marker for streams whose rows all arrive in the first tick."""


class Changes:
    """Marker for streams with retractions."""


class Append(Changes):
    """Marker for append streams."""


class NoOrder:
    """Marker for streams without a meaningful order."""


class Ordered(NoOrder):
    """Marker for streams with a meaningful order."""


T_co = TypeVar("T_co", covariant=True)
B = TypeVar("B", bound=Unbounded, covariant=True, default=Unbounded)
G = TypeVar("G", bound=Changes, covariant=True, default=Changes)
O = TypeVar("O", bound=NoOrder, covariant=True, default=NoOrder)


class StreamBase(StreamMisuse, Output, Generic[T_co, B, G, O]):
    """Base of all streams: flow, node and columns."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Stream({self._flow.name!r}, {self._flow.node(self._id).name}{self._schema})"

    def _add(
        self, operator: Operator, schema: Schema, name: str | None, location: SourceLocation
    ) -> AnyStream:
        return self._flow.add(operator, schema, (self,), name, location)

    def _computed(self, columns: Sequence[tuple[str, Expr]], into: Any, location: SourceLocation) -> Schema:
        fields: list[Field] = []
        for name, expr in columns:
            typed = check(expr, self._schema)
            fields.append(Field(name, typed.type, typed.nullable))
        names = [f.name for f in fields]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise WrongType(
                f"column {twice[0]!r} is selected twice",
                where=[location],
                fix="give one of them another name, by keyword: its_name=...",
                column=twice[0],
            )
        if not fields:
            raise WrongType(
                "a select needs at least one column",
                where=[location],
                why="Rows without columns could not be distinguished.",
                fix='select("price", double=hr.col.price * 2)',
            )
        schema = computed_schema(tuple(fields))
        return schema if into is None else with_row_class(schema, into, location)

    def _united(
        self, what: str, others: Sequence[StreamBase[Any, Any, Any, Any]], location: SourceLocation
    ) -> Schema:
        """Return the common row type of this stream and `others`. Raises `WrongType` if types differ."""
        for other in others:
            check_stream(other, what, location)
            self.check_row_type(what, other, location)
        fields = tuple(
            Field(f.name, f.type, any(s._schema.fields[at].nullable for s in (self, *others)))
            for at, f in enumerate(self._schema.fields)
        )
        return Schema(fields, self._schema.row_class, self._schema.scalar)

    def check_row_type(
        self, what: str, other: StreamBase[Any, Any, Any, Any], location: SourceLocation
    ) -> None:
        """Raise `WrongType` unless `other` has the columns of this stream, for operator `what`."""
        mine = [(f.name, f.type) for f in self._schema.fields]
        theirs = [(f.name, f.type) for f in other._schema.fields]
        if mine != theirs:
            raise WrongType(
                f"{what} needs streams of one row type",
                where=[location],
                why=f"One has {self._schema},\nthe other {other._schema}.",
                fix="select() the same names in the same order, and cast() where types differ",
            )


class Groups(GroupMisuse, Shown):
    """Base of grouped streams, which `agg` turns into streams."""

    __slots__ = ("_keys", "_stream")

    def __init__(self, stream: StreamBase[Any, Any, Any, Any], keys: tuple[tuple[str, Expr], ...]) -> None:
        self._stream = stream
        self._keys = keys

    def __repr__(self) -> str:
        keys = ", ".join(name for name, _ in self._keys)
        return f"{type(self).__name__}({self._stream.flow.name!r}, by ({keys}))"

    @property
    def stream(self) -> StreamBase[Any, Any, Any, Any]:
        """The stream whose rows are grouped."""
        return self._stream

    @property
    def keys(self) -> tuple[tuple[str, Expr], ...]:
        """Columns of the key with the expressions that compute them."""
        return self._keys


def check_stream(given: object, what: str, location: SourceLocation) -> None:
    """Raise `WrongType` unless a value is a stream."""
    if isinstance(given, StreamBase):
        return
    if isinstance(given, Output):
        raise WrongType(
            f"{what} needs a stream, got the signal {given.flow.node(given.node_id).name!r}",
            where=[location],
            why="A signal is one value, which changes; a stream is rows.",
            fix="take a row for each of its values: signal.stream()",
        )
    grouped = isinstance(given, Groups)
    raise WrongType(
        f"{what} needs a stream, got {'a group without aggregates' if grouped else render_argument(given)}",
        where=[location],
        fix="follow group_by(...) with .agg(...)" if grouped else "rows enter a flow by flow.source(...)",
    )
