"""Rows by group, in an order: the arrangement of what answers groups by their first rows, or row by row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

import polars as pl

from headrace.arrangement.batch import Layout, Order, select
from headrace.columns.column_stream import ColumnStream, build_stream, empty_stream, with_one_zero
from headrace.columns.columns import WEIGHT, rows_to_columns
from headrace.columns.expressions import reads_columns
from headrace.columns.slot_forms import BagForm, Values, column_of, consolidated, key_names
from headrace.expr.check import check
from headrace.expr.polars_columns import NotLowered, dtype_of, replace_negative_zero

if TYPE_CHECKING:
    from headrace.expr.tree import Expr, Ordering
    from headrace.expr.types import DataType, Schema

OfCopies: TypeAlias = Callable[[dict[tuple[Any, ...], int]], Any]
"""Function that makes a group's entry of the copies of its rows."""


@dataclass(frozen=True)
class RowsInOrder:
    """Rows of `schema` by group, in an order. Where `by` holds rows equal, their columns tell."""

    per: tuple[Expr, ...]
    by: tuple[Ordering, ...]
    schema: Schema

    @property
    def keys(self) -> tuple[DataType, ...]:
        """Return the types of the groups' keys."""
        return tuple(check(expr, self.schema).type for expr in self.per)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Return the columns with the groups' keys: of the rows, or beside them if they are computed."""
        return key_names(self.per, self.schema)

    @property
    def by_names(self) -> tuple[str, ...]:
        """Return the columns with what rows are sorted by, as `key_names`."""
        return tuple(self._descending)

    @cached_property
    def _descending(self) -> dict[str, bool]:
        """Return for each of these columns whether it is descending."""
        found: dict[str, bool] = {}
        for at, ordering in enumerate(self.by):
            found.setdefault(column_of(ordering.expr, self.schema) or f"o{at}", ordering.descending)
        return found

    @cached_property
    def _computed(self) -> dict[str, Expr]:
        """Return the expressions of computed key and order columns."""
        exprs = dict(zip(self.key_names, self.per, strict=False))
        exprs |= {f"o{at}": ordering.expr for at, ordering in enumerate(self.by)}
        wanted = {*self.key_names, *self.by_names}
        return {name: expr for name, expr in exprs.items() if name in wanted and not name.isdigit()}

    @cached_property
    def layout(self) -> Layout:
        """Layout of all rows: by group, sorted."""
        rows = {str(at): dtype_of(f.type) for at, f in enumerate(self.schema.fields)}
        per = [check(expr, self.schema) for expr in self.per]
        keys = dict(zip(self.key_names, [dtype_of(of.type) for of in per] or [pl.Int64()], strict=True))
        computed = self._computed.items()
        by = {name: dtype_of(check(expr, self.schema).type) for name, expr in computed if name not in keys}
        names = dict.fromkeys((*self.by_names, *rows))
        order = tuple(Order(n, self._descending.get(n, False)) for n in names if n not in keys)
        types = {**keys, **by, **rows, WEIGHT: pl.Int64()}
        return Layout(types, tuple(keys), (WEIGHT,), any(of.nullable for of in per), order)

    def keyed(self, stream: ColumnStream) -> ColumnStream:
        """Add groups, what rows are sorted by, and missing weights."""
        lowered = {name: stream.lower(expr) for name, expr in self._computed.items()}
        noted = stream.noting(*(one.fails for one in lowered.values()))
        columns = [
            (replace_negative_zero(one.value) if self.layout.types[name].is_float() else one.value).alias(
                name
            )
            for name, one in lowered.items()
        ]
        if not self.per:
            columns.append(pl.lit(0, pl.Int64()).alias(self.key_names[0]))
        if stream.append:
            columns.append(pl.lit(1, pl.Int64()).alias(WEIGHT))
        return replace(noted, frame=noted.frame.with_columns(columns)) if columns else noted

    def given(self, stream: ColumnStream) -> pl.DataFrame:
        """Return new rows as they are kept. Raises `ColumnarDeclined`."""
        return select(self.keyed(with_one_zero(stream)).collected(), self.layout.types)

    def weighted(self, rows: list[tuple[Any, ...]]) -> pl.DataFrame:
        """Return rows in Python, with their weights, as they are kept. Raises `ColumnarDeclined`."""
        stream = build_stream(rows_to_columns(self.schema, False, rows))
        return self.keyed(stream).unmarked()


def rows_in_order(
    per: tuple[Expr, ...], by: tuple[Ordering, ...], schema: Schema, *, append: bool
) -> RowsInOrder:
    """Return the order of an operator's rows. append: of the input. Raises `NotLowered`."""
    if not all(map(reads_columns, (*per, *(ordering.expr for ordering in by)))):
        raise NotLowered("a constant key stays in rows")
    rows = RowsInOrder(per, by, schema)
    rows.keyed(empty_stream(schema, append))
    assert rows.layout.types
    return rows


@dataclass(frozen=True)
class RowsForm(BagForm):
    """Form of a slot whose entries are made of the rows of a group. copies: returns those of an entry."""

    rows: RowsInOrder
    of_copies: OfCopies
    copies: Callable[[Any], Mapping[Any, int]]

    @classmethod
    def of(
        cls, rows: RowsInOrder, of_copies: OfCopies, copies: Callable[[Any], Mapping[Any, int]]
    ) -> RowsForm:
        """Return the form of a slot of such rows."""
        read = tuple((str(at), field.type) for at, field in enumerate(rows.schema.fields))
        return cls(rows.layout, rows.keys, len(rows.keys) == 1, read, rows, of_copies, copies)

    def entry(self, key: Any, found: Sequence[tuple[Any, ...]]) -> Any:
        copies = consolidated(found)
        return self.of_copies(copies) if copies else None

    def rows_of(self, entry: Any) -> Iterable[tuple[Values, int]]:
        return self.copies(entry).items()

    def weighted(self, rows: list[Values]) -> pl.DataFrame:
        return self.rows.weighted(rows)
