"""Weighted rows: the input and output of an engine."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Never, TypeVar, overload

from headrace.columns.columns import ColumnarRows
from headrace.errors import BadInput, SourceLocation, WrongType, did_you_mean
from headrace.expr.types import Rows
from headrace.shown import Shown

if TYPE_CHECKING:
    from headrace.expr.types import Schema


T = TypeVar("T")


class Change(NamedTuple, Generic[T]):
    """A row with its weight: copies inserted (positive) or deleted (negative)."""

    row: T
    weight: int


def insert(row: T, *columns: Never) -> Change[T]:
    """Create the insertion of one copy of `row`, for a table source."""
    if columns:
        raise _not_a_row("insert", row, *columns)
    return Change(row, 1)


def delete(row: T, *columns: Never) -> Change[T]:
    """Create the deletion of one copy of `row`, for a table source."""
    if columns:
        raise _not_a_row("delete", row, *columns)
    return Change(row, -1)


def _not_a_row(function: str, *columns: object) -> WrongType:
    return WrongType(
        f"{function}() takes one row, got {len(columns)} values",
        where=[SourceLocation.of_caller()],
        fix=f"make a row of its columns: {function}(RowClass({', '.join(map(repr, columns))}))",
    )


@dataclass(frozen=True, slots=True)
class Update(Generic[T]):
    """Replacement of a row by another, for a table with a key."""

    before: T
    after: T


@dataclass(frozen=True, slots=True)
class KeyDeletion:
    """Deletion of the row with the given key. sequence: of the deletion, for a table with a sequence."""

    key: Any
    sequence: Any = None


def update(before: T, after: T) -> Update[T]:
    """Create the replacement of a row by another one, for a table with a key."""
    return Update(before, after)


def delete_key(key: Any, *, sequence: Any = None) -> KeyDeletion:
    """Create the deletion of the row with the given key, for a table with a key.

    key:      a value, or a tuple of them for a key of several columns.
    sequence: orders it among the records of the key, for a table with a sequence.
    """
    return KeyDeletion(key, sequence)


def rows_to_frame(schema: Schema, append: bool, rows: Rows) -> ColumnarRows:
    """Convert internal rows to columns. Raises `BadInput` if Polars cannot hold the rows."""
    from headrace.columns.columns import ColumnarDeclined, can_hold, rows_to_columns

    if not can_hold(schema):
        raise BadInput(f"rows of {schema} cannot stand in columns", fix="read them as rows")
    try:
        return rows_to_columns(schema, append, rows)
    except ColumnarDeclined as error:
        raise BadInput(
            "these changes hold a value that cannot stand in columns",
            why=str(error.__cause__),
            fix="read them as rows",
        ) from error


class SinkChanges(Shown, Sequence[Change[Any]]):
    """Consolidated changes of one sink in one tick.

    For a table, each row occurs at most once, with a non-zero weight. For an append stream, each copy of a
    row is a separate change, in stream order. Rows become instances of their row class only when accessed.
    `raw` has plain tuples with the weight as the last field. Output that a large tick leaves in columns also
    becomes rows only on access; `frame` returns the columns directly.
    """

    __slots__ = ("_append", "_made", "_schema", "_to_user")

    def __init__(
        self,
        rows: Rows | ColumnarRows,
        append: bool,
        to_user: Callable[[tuple[Any, ...]], Any],
        schema: Schema | None = None,
    ) -> None:
        self._made = rows
        self._append = append
        self._to_user = to_user
        self._schema = schema

    @property
    def _rows(self) -> Rows:
        made = self._made
        return made if isinstance(made, list) else made.rows()

    def frame(self) -> Any:
        """Convert to a Polars `DataFrame`, with weights in `weight` unless the stream is append-only.

        (In `_weight` if the rows have a column of that name, and so on.)

        Raises `BadInput` if Polars has no type for a column, or cannot hold a value.
        """
        if self._schema is None:
            raise BadInput("the columns of these changes are not known", fix="read their rows")
        made = self._made
        return (
            rows_to_frame(self._schema, self._append, made) if isinstance(made, list) else made
        ).user_frame()

    @property
    def raw(self) -> list[tuple[Any, ...]]:
        return [(*row, 1) for row in self._rows] if self._append else self._rows

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the rows' columns; empty if they are not known."""
        return () if self._schema is None else self._schema.names

    @property
    def is_append(self) -> bool:
        """Return whether the stream is append-only, so that every weight is +1."""
        return self._append

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        """Return an append-only stream's rows as plain tuples, without weights. Raises `BadInput` for a
        table.
        """
        if not self._append:
            raise BadInput(
                "the rows of a table come and go, so their weights cannot be left out",
                fix="read `raw`, which has the weight as last field",
            )
        return self._rows

    def _change(self, row: tuple[Any, ...]) -> Change[Any]:
        if self._append:
            return Change(self._to_user(row), 1)
        return Change(self._to_user(row[:-1]), row[-1])

    def __len__(self) -> int:
        return len(self._made)

    @overload
    def __getitem__(self, index: int) -> Change[Any]: ...
    @overload
    def __getitem__(self, index: slice) -> list[Change[Any]]: ...
    def __getitem__(self, index: int | slice) -> Change[Any] | list[Change[Any]]:
        if isinstance(index, slice):
            return [self._change(row) for row in self._rows[index]]
        return self._change(self._rows[index])

    def __iter__(self) -> Iterator[Change[Any]]:
        return map(self._change, self._rows)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SinkChanges | list):
            return list(self) == list(other)  # pyright: ignore[reportUnknownArgumentType]
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"SinkChanges({list(self)!r})"


class TickOutput(Shown, dict[str, SinkChanges]):
    """Changes of one tick, per sink, including empty ones. An unknown name raises `UnknownSink`."""

    __slots__ = ()

    def __missing__(self, name: str) -> SinkChanges:
        raise unknown_sink(name, self)


class UnknownSink(BadInput, KeyError):
    """The flow has no sink of this name."""

    code = "P210"

    __str__ = Exception.__str__


def unknown_sink(name: str, sinks: Collection[str]) -> UnknownSink:
    """Build the error for an unknown sink name."""
    return UnknownSink(
        f"the flow has no sink {name!r}",
        where=[SourceLocation.of_caller()],
        why=f"Its sinks are {', '.join(map(repr, sinks))}.",
        fix=did_you_mean(name, sinks) or "use the name that was given to flow.sink(...)",
        sink=name,
    )
