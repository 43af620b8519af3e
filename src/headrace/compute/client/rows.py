"""Conversion between users' rows and internal rows of collections and views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from headrace.compute.protocol.client_messages import Description
from headrace.engine.change import Change
from headrace.errors import BadInput, SourceLocation, UnknownColumn
from headrace.expr.dict_keys import with_representatives
from headrace.expr.row_classes import from_user, row_class, to_user
from headrace.expr.tree import Column, Expr, Ordering
from headrace.expr.types import Field, ListType, MapType, Schema, StructType

Row = tuple[Any, ...]


@dataclass(frozen=True)
class CachedDescription:
    """Description of a view or collection, cached by a client.

    id:   distinguishes it from other views or collections that have had the same name.
    key:  key columns of a view; empty: the whole row.
    view: whether it is a view; otherwise a collection.
    """

    name: str
    id: str
    view: bool
    schema: Schema
    key: tuple[str, ...] = ()
    append_only: bool = False

    def to_weighted_rows(self, rows: Iterable[Any], sign: int) -> list[tuple[Row, int]]:
        """Convert users' rows, or `Change`s of them, to internal rows with weights multiplied by `sign`.

        Raises `BadRow`.
        """
        changes = [_change(row) for row in rows]
        bare, weights = [c.row for c in changes], [c.weight for c in changes]
        return list(zip(self._internal(bare), (sign * weight for weight in weights), strict=True))

    def _internal(self, rows: list[Any]) -> list[Row]:
        what = f"{'view' if self.view else 'collection'} {self.name!r}"
        schema = self.schema
        kinds: dict[type[Any], tuple[str, ...] | None] = {
            kind: getattr(kind, "_fields", None) for kind in set[type[Any]](map(type, rows))
        }
        by_name = {kind for kind, names in kinds.items() if names not in (None, schema.names)}
        if by_name and not schema.scalar:
            # Columns of a named tuple are matched by name, in whatever order they are declared.
            rows = [row._asdict() if type(row) in by_name else row for row in rows]
        elif len(kinds) == 1 and schema.names in kinds.values() and not schema.scalar:
            schema = replace(schema, row_class=next(iter(kinds)))  # such rows pass as they are
        if schema.row_class not in self._readers:
            self._readers[schema.row_class] = from_user(schema, what=what)
        return self._readers[schema.row_class](rows)

    @classmethod
    def of(cls, name: str, found: Description) -> CachedDescription:
        """Cache the controller's description of a name."""
        return cls(name, found.id, found.view, found.schema, found.key, found.append_only)

    @cached_property
    def _readers(self) -> dict[type[Any] | None, Callable[[Iterable[object]], list[Row]]]:
        """Cached row converters by row class: building one takes much longer than converting a row."""
        return {}

    @cached_property
    def to_user(self) -> Callable[[Row], Any]:
        """Conversion from internal rows to users' rows."""
        return to_user(self.schema)

    def projection(self, columns: Sequence[str | Expr]) -> tuple[tuple[int, ...], Schema]:
        """Return the positions of columns, and the schema of rows of them.

        Raises `UnknownColumn`.
        """
        positions = tuple(self.position(column) for column in columns)
        return positions, Schema(tuple(self.schema.fields[at] for at in positions))

    def position(self, column: str | Expr) -> int:
        """Return the position of a column, given by name or as `col.name`.

        Raises `UnknownColumn`, `BadInput`.
        """
        name = column.name if isinstance(column, Column) else column
        if not isinstance(name, str):
            raise BadInput(
                f"{column} is no column of {self.name!r}",
                where=[SourceLocation.of_caller()],
                why="The rows of an answer can be sorted and cut by columns that the view has.",
                fix="let the flow of the view compute it",
            )
        at = self.schema.position(name)
        if at is None:
            raise UnknownColumn(
                f"{self.name!r} has no column {name!r}",
                where=[SourceLocation.of_caller()],
                why=f"Its columns are {self.schema}.",
                column=name,
            )
        return at

    def ordering(self, order_by: object) -> list[tuple[int, bool]]:
        """Return the positions of the columns to sort by, each with whether it is descending."""
        several = isinstance(order_by, list | tuple)
        each = cast("Sequence[object]", order_by) if several else [order_by]
        return [self._ordered(one) for one in each]

    def _ordered(self, one: object) -> tuple[int, bool]:
        if isinstance(one, Ordering):
            return self.position(one.expr), one.descending
        return self.position(cast("str | Expr", one)), False

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Key columns of the view's or collection's index."""
        return self.key or self.schema.names

    def to_internal_keys(self, keys: Iterable[Any]) -> list[Row]:
        """Convert keys to internal rows: bare values for one key column, tuples or mappings for several.

        Raises `BadRow`.
        """
        fields, read = self._key_reader
        if len(fields) != 1:
            return read(keys)
        if isinstance(fields[0].type, StructType | ListType | MapType):
            return read([(key,) for key in keys])
        return read([cast("object", key) if isinstance(key, tuple) else (key,) for key in keys])

    @cached_property
    def _key_reader(self) -> tuple[tuple[Field, ...], Callable[[Iterable[object]], list[Row]]]:
        """Key columns, with the converter for keys."""
        fields = tuple(self.schema.fields[self.position(name)] for name in self.key_columns)
        keys = Schema(fields)
        read = from_user(keys, what=f"keys of {self.name!r}")
        return fields, lambda rows: list(with_representatives(read(rows), keys))

    @property
    def row_class(self) -> type[Any]:
        """Class of users' rows."""
        return row_class(self.schema)


def _change(row: Any) -> Change[Any]:
    return cast("Change[Any]", row) if type(row) is Change else Change(row, 1)
