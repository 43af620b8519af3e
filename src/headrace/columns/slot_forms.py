"""Slot forms: the correspondence between keyed entries and rows of an arrangement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from headrace.arrangement.batch import Layout, Order, concat_frames, negated, select
from headrace.columns.column_stream import ColumnStream, build_stream, empty_stream, with_one_zero
from headrace.columns.columns import WEIGHT, ColumnarDeclined, rows_to_columns
from headrace.columns.expressions import reads_columns
from headrace.expr.check import check
from headrace.expr.polars_columns import NotLowered, dtype_of, replace_negative_zero, to_series
from headrace.expr.tree import Column
from headrace.expr.types import DataType
from headrace.expr.typing_rules import is_float
from headrace.requirements import np, pl

if TYPE_CHECKING:
    from headrace.expr.tree import Expr, Ordering
    from headrace.expr.types import Schema

Values = tuple[Any, ...]


@dataclass(frozen=True)
class SlotForm(ABC):
    """Correspondence between a slot's keyed entries and rows of an arrangement.

    layout: of the arrangement.
    keys:   types of the parts of a key, in the layout's order.
    bare:   whether a key is the value of its one part, and no tuple.
    read:   columns that an entry is made of, besides the key and the sums.
    of_pair: a key is a pair of such a key and the last part.
    group:  last part of the key, if its values can be deleted like keys, with all keys that have them.
    aside:  columns of rows that are put aside (`DescribedRows`).
    reused: how often a key that rows fetched is touched before columns take it back, about.
    grows:  entries are lists of rows, to which rows are added at the end.
    """

    of_pair: ClassVar[bool] = False
    group: ClassVar[str | None] = None
    reused: ClassVar[int] = 1

    @property
    def aside(self) -> tuple[str, ...]:
        return ()

    @property
    def grows(self) -> bool:
        return False

    layout: Layout
    keys: tuple[DataType, ...]
    bare: bool
    read: tuple[tuple[str, DataType], ...]

    def parts(self, key: Any) -> Values:
        """Return the parts of a key."""
        if self.of_pair:
            own, last = key
            return (own, last) if self.bare else (*own, last)
        return (key,) if self.bare else key

    def key(self, parts: Values) -> Any:
        """Return the key with these parts."""
        if self.of_pair:
            return (parts[0] if self.bare else parts[:-1], parts[-1])
        return parts[0] if self.bare else parts

    @property
    def sections(self) -> tuple[int, ...]:
        """Return the values of the layout's last key column if it is not part of an entry's key."""
        return ()

    @abstractmethod
    def entry(self, key: Any, found: Sequence[Values]) -> Any:
        """Build a key's entry from its rows; None for no entry. Each row has `read`, then the sums."""

    @abstractmethod
    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        """Return the rows of entries, with all columns of the layout. Raises `ColumnarDeclined`."""

    def changes(self, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> pl.DataFrame:
        """Return the changed rows that replace entries with others. Raises `ColumnarDeclined`."""
        return concat_frames([negated(self.layout, self.present(before)), self.present(after)])

    def present(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        """Return the rows of all entries other than None, with the columns in the layout's order."""
        there = {key: entry for key, entry in entries.items() if entry is not None}
        types = self.layout.types
        return select(self.frame(there), types) if there else pl.DataFrame(schema=types)


class BagForm(SlotForm):
    """Form of a slot with bags of rows as entries. A tick changes few rows of an entry."""

    @abstractmethod
    def rows_of(self, entry: Any) -> Iterable[tuple[Values, int]]:
        """Return the rows of an entry, each with its number of copies."""

    @abstractmethod
    def weighted(self, rows: list[Values]) -> pl.DataFrame:
        """Convert rows with counts to a frame with the layout's columns. Raises `ColumnarDeclined`."""

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        return self.weighted([row for entry in entries.values() for row in self._weighted_rows(entry)])

    def changes(self, before: Mapping[Any, Any], after: Mapping[Any, Any]) -> pl.DataFrame:
        changed: list[Values] = []
        for key in dict.fromkeys((*before, *after)):
            old, new = self._weighted_rows(before.get(key)), self._weighted_rows(after.get(key))
            if new[: len(old)] == old:
                # Rows that are only added keep their -0.0, which equals 0.0 where copies are counted.
                changed += new[len(old) :]
                continue
            was, is_now = consolidated(old), consolidated(new)
            changed += [(*row, -n) for row, n in was.items() if row not in is_now]
            changed += [(*row, n - was.get(row, 0)) for row, n in is_now.items() if was.get(row) != n]
        types = self.layout.types
        return select(self.weighted(changed), types) if changed else pl.DataFrame(schema=types)

    def _weighted_rows(self, entry: Any) -> list[Values]:
        return [] if entry is None else [(*row, n) for row, n in self.rows_of(entry)]


def consolidated(found: Sequence[Values]) -> dict[Values, int]:
    """Consolidate the rows of a key to counts other than 0. found: rows with the number of copies last."""
    copies: dict[Values, int] = {}
    for row in found:
        copies[row[:-1]] = copies.get(row[:-1], 0) + row[-1]
    return {row: count for row, count in copies.items() if count}


@dataclass(frozen=True)
class CountForm(SlotForm):
    """Form of a slot of counts: key -> number of rows. There are no other columns."""

    def entry(self, key: Any, found: Sequence[Values]) -> Any:
        return sum(count for (count,) in found) or None

    def frame(self, entries: Mapping[Any, Any]) -> pl.DataFrame:
        return keys_with_sums(self, list(entries), [list(entries.values())])


def key_columns(form: SlotForm, keys: list[Any]) -> list[pl.Series]:
    """Convert keys to columns for probing the arrangement. Raises `ColumnarDeclined`."""
    if not form.keys:
        return [one_key(len(keys))]
    parts = list(zip(*map(form.parts, keys), strict=True)) or [()] * len(form.keys)
    try:
        return [to_series(type, list(part)) for type, part in zip(form.keys, parts, strict=True)]
    except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as error:
        raise ColumnarDeclined from error


def keys_with_sums(form: SlotForm, keys: list[Any], sums: Sequence[list[int]]) -> pl.DataFrame:
    """Return the rows of keys with their sums, for a layout without other columns.

    Raises `ColumnarDeclined` for a number beyond 64 bits.
    """
    try:
        columns = [pl.Series(values, dtype=pl.Int64) for values in sums]
    except (OverflowError, TypeError) as error:
        raise ColumnarDeclined from error
    named = zip([*key_columns(form, keys), *columns], form.layout.types, strict=True)
    return pl.DataFrame([column.alias(name) for column, name in named])


def one_key(rows: int) -> pl.Series:
    """Return the constant key column of rows without keys."""
    return pl.Series(np.zeros(rows, np.int64))


def column_of(expr: Expr, schema: Schema) -> str | None:
    """Return the name of a plain column; None for other expressions, and for floats, with their two zeros."""
    if not isinstance(expr, Column):
        return None
    at = schema.position(expr.name)
    return None if at is None or is_float(schema.fields[at].type) else str(at)


def key_names(keys: Sequence[Expr], schema: Schema) -> tuple[str, ...]:
    """Return the key columns: row columns, or "k0", ... for computed keys."""
    names: list[str] = []
    for at, expr in enumerate(keys):
        name = column_of(expr, schema)
        names.append(f"k{at}" if name is None or name in names else name)
    return tuple(names) or names_of_keys(0)


def names_of_keys(count: int) -> tuple[str, ...]:
    """Return names for computed keys: at least one, since rows without keys share a constant key."""
    return tuple(f"k{at}" for at in range(max(count, 1)))


OfCopies: TypeAlias = Callable[[dict[tuple[Any, ...], int]], Any]
"""Function that makes a group's entry of the copies of its rows."""


@dataclass(frozen=True)
class RowsInOrder:
    """Rows of `schema` by group, in order. Ties in `by` are broken by the whole row."""

    per: tuple[Expr, ...]
    by: tuple[Ordering, ...]
    schema: Schema

    @property
    def keys(self) -> tuple[DataType, ...]:
        """Return the types of the groups' keys."""
        return tuple(check(expr, self.schema).type for expr in self.per)

    @cached_property
    def key_names(self) -> tuple[str, ...]:
        """Return the group key columns: row columns, or extra ones for computed keys."""
        return key_names(self.per, self.schema)

    @property
    def by_names(self) -> tuple[str, ...]:
        """Return the sort columns, like `key_names`."""
        return tuple(self._descending)

    @cached_property
    def _descending(self) -> dict[str, bool]:
        """Map each sort column to whether it is descending."""
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
        """Add group keys, sort columns and missing weights."""
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
        """Convert new rows to their stored form. Raises `ColumnarDeclined`."""
        return select(self.keyed(with_one_zero(stream)).collected(), self.layout.types)

    def weighted(self, rows: list[tuple[Any, ...]]) -> pl.DataFrame:
        """Convert weighted Python rows to their stored form. Raises `ColumnarDeclined`."""
        stream = build_stream(rows_to_columns(self.schema, False, rows))
        return self.keyed(stream).unmarked()


def rows_in_order(
    per: tuple[Expr, ...], by: tuple[Ordering, ...], schema: Schema, *, append: bool
) -> RowsInOrder:
    """Return an operator's row order. append: whether the input is append-only. Raises `NotLowered`."""
    if not all(map(reads_columns, (*per, *(ordering.expr for ordering in by)))):
        raise NotLowered("a constant key stays in rows")
    rows = RowsInOrder(per, by, schema)
    rows.keyed(empty_stream(schema, append))
    assert rows.layout.types
    return rows


@dataclass(frozen=True)
class RowsForm(BagForm):
    """Form of a slot with entries built from a group's rows. copies: returns an entry's rows with counts."""

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
