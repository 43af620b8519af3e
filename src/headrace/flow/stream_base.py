"""Base class of streams: row type checks, and adding operators.

The public methods are grouped by theme in `stream.py` and the `stream_*.py` beside it; each theme is a class
over this base, and `Stream` combines them all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from headrace.errors import SourceLocation, WrongType
from headrace.expr.check import check
from headrace.expr.row_classes import computed_schema
from headrace.expr.tree import Expr
from headrace.expr.types import Field, Schema
from headrace.flow.output_handle import AnyStream, Output
from headrace.flow.stream_misuse import GroupMisuse, StreamMisuse
from headrace.flow.type_markers import Changes, NoOrder, Unbounded
from headrace.operators.column_arguments import render_argument, with_row_class
from headrace.operators.lifetime import check_reason as check_reason
from headrace.shown import Shown

if TYPE_CHECKING:
    from headrace.graph.node import Operator

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
