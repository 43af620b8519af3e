"""A batch: rows of columns, sorted by the codes of their keys, that never change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from penstock.arrangement.codes import Codes, codes_of, is_exact

Places: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
"""Numbers of rows."""


class Order(NamedTuple):
    """A column that rows of one key are sorted by. Nulls come first, or last if descending."""

    column: str
    descending: bool


WIDE_BITS = 32
"""Bits of the lower parts of a wide sum."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of an arrangement are.

    types: of all columns, by name. keys: columns that rows are found by.
    sums: columns of 64-bit integers that are added when rows are equal in all others. A row whose sums are
        all zero is not there.
    nullable: whether a key may be null.
    wide: sums that stand for one of more than 64 bits: of 32 bits each, never negative, from the lowest on;
        the last has the rest.
    order: what rows of one key are sorted by: nothing, or all columns that are neither keys nor sums.

    A collection of rows has its weights as the only sums. An aggregate of groups has keys and sums alone.
    """

    types: dict[str, pl.DataType]
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    nullable: bool
    order: tuple[Order, ...] = ()
    wide: tuple[tuple[str, ...], ...] = ()

    @property
    def exact(self) -> bool:
        """Return whether codes are equal only where keys are."""
        return is_exact([self.types[key] for key in self.keys], self.nullable)

    @property
    def values(self) -> tuple[str, ...]:
        """Return the columns that are neither keys nor sums."""
        return tuple(name for name in self.types if name not in self.keys and name not in self.sums)

    def keys_of(self, frame: pl.DataFrame) -> list[pl.Series]:
        """Return the columns of the rows' keys."""
        return [frame[key] for key in self.keys]

    def codes_of(self, keys: Sequence[pl.Series]) -> Codes:
        """Return the codes of keys."""
        return codes_of(keys, exact=self.exact)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows sorted by `codes`; those of one key lie side by side.

    A key is there once if there are no columns but keys and sums.

    bounds: per sum of the layout what the absolute values of all rows add up to, about.
    """

    codes: Codes
    frame: pl.DataFrame
    bounds: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def slice(self, start: int, stop: int) -> Batch:
        """Return the rows from one place up to another."""
        return Batch(self.codes[start:stop], self.frame.slice(start, stop - start), self.bounds)


def batch_of(layout: Layout, frame: pl.DataFrame) -> Batch:
    """Sort rows into a batch. Equal rows are added up where one of them takes back another."""
    codes = layout.codes_of(layout.keys_of(frame))
    return _settled(layout, _sorted(layout, codes, select(frame, layout.types)))


def merged(layout: Layout, first: Batch, second: Batch) -> Batch:
    """Merge two batches; of equal keys the rows of the first one come first."""
    codes = np.concatenate((first.codes, second.codes))
    return _settled(layout, _sorted(layout, codes, pl.concat((first.frame, second.frame))))


def _sorted(layout: Layout, codes: Codes, frame: pl.DataFrame) -> Batch:
    if layout.order:
        apart = () if layout.exact else layout.keys
        by = [Order("#", False), *(Order(key, False) for key in apart), *layout.order]
        order = ordered(frame.with_columns(pl.Series("#", codes)), by)
        codes, frame = codes[order], take(frame, order)
    elif bool((codes[1:] < codes[:-1]).any()):
        order = np.argsort(codes, kind="stable")  # two sorted runs are merged
        codes, frame = codes[order], take(frame, order)
    one_key = layout.exact or bool(layout.order)
    if not one_key and unlike(select(frame, layout.keys), np.flatnonzero(codes[1:] == codes[:-1])).any():
        # Several keys have one code: rows of each are brought side by side.
        keys = pl.DataFrame([pl.Series("", codes), *layout.keys_of(frame)])
        frame = take(
            frame, keys.select(pl.arg_sort_by(*keys.columns, maintain_order=True)).to_series().to_numpy()
        )
    return Batch(codes, frame, tuple(_bound(frame[name]) for name in layout.sums))


def ordered(frame: pl.DataFrame, by: Sequence[Order]) -> Places:
    """Return the places of rows as sorted."""
    descending = [each.descending for each in by]
    columns = [pl.col(each.column) for each in by]
    places = pl.arg_sort_by(columns, descending=descending, nulls_last=descending, maintain_order=True)
    return frame.select(places).to_series().to_numpy().astype(np.int64)


def _bound(column: pl.Series) -> float:
    return float(np.abs(column.to_numpy().astype(np.float64)).sum())


def _settled(layout: Layout, batch: Batch) -> Batch:
    """Add up what is equal: all rows of a key if they only have sums, else those that some row takes back."""
    if not len(batch):
        return batch
    starts = _key_starts(layout, batch)
    if not layout.values:
        if len(starts) == len(batch):
            return _present(layout, batch)
        sums = _carried(layout, _added(layout, batch.frame, starts))
        frame = _with_sums(layout, take(batch.frame, starts), sums)
        return _present(layout, Batch(batch.codes[starts], frame, batch.bounds))
    mixed = np.zeros(len(starts), np.bool_)
    for name in layout.sums:
        column = batch.frame[name].to_numpy()
        if column.min() < 0 < column.max():
            mixed |= (np.minimum.reduceat(column, starts) < 0) & (np.maximum.reduceat(column, starts) > 0)
    if mixed.any():
        places = np.flatnonzero(np.repeat(mixed, np.diff(starts, append=len(batch))))
        batch = _cancelled(layout, batch, places)
    return _present(layout, batch)


def _key_starts(layout: Layout, batch: Batch) -> Places:
    """Return the places of the first row of each key."""
    starts = np.ones(len(batch), np.bool_)
    starts[1:] = batch.codes[1:] != batch.codes[:-1]
    if not layout.exact:
        same = np.flatnonzero(~starts) - 1
        starts[same + 1] = unlike(select(batch.frame, layout.keys), same)
    return np.flatnonzero(starts)


def _added(layout: Layout, frame: pl.DataFrame, starts: Places) -> list[Any]:
    """Add up the sums of rows that lie side by side, from each start to the next."""
    return [np.add.reduceat(frame[name].to_numpy(), starts) for name in layout.sums]


def _carried(layout: Layout, sums: list[Any]) -> list[Any]:
    """Carry what wide sums have beyond their lower bits, so that equal ones look alike."""
    at = {name: number for number, name in enumerate(layout.sums)}
    for low, high in chain.from_iterable(map(pairwise, layout.wide)):
        lower = sums[at[low]]
        sums[at[high]] = sums[at[high]] + (lower >> WIDE_BITS)
        sums[at[low]] = lower & ((1 << WIDE_BITS) - 1)
    return sums


def _with_sums(layout: Layout, frame: pl.DataFrame, sums: Sequence[Any]) -> pl.DataFrame:
    made = frame.clone()
    for name, column in zip(layout.sums, sums, strict=True):
        made.replace_column(made.get_column_index(name), pl.Series(name, column))
    return made


def _present(layout: Layout, batch: Batch) -> Batch:
    """Leave out rows whose sums are all zero."""
    present = np.zeros(len(batch), np.bool_)
    for name in layout.sums:
        present |= batch.frame[name].to_numpy() != 0
    if present.all():
        return batch
    at = np.flatnonzero(present)
    frame = take(batch.frame, at)
    return Batch(batch.codes[at], frame, tuple(_bound(frame[name]) for name in layout.sums))


def _cancelled(layout: Layout, batch: Batch, at: Places) -> Batch:
    """Add up rows that are equal, among those at some places. The first of them stays in its place."""
    rows = take(batch.frame, at)
    own = select(rows, (*layout.keys, *layout.values))
    alike = codes_of(own.get_columns(), exact=False)
    order = np.argsort(alike, kind="stable")
    starts = np.ones(len(at), np.bool_)
    starts[1:] = alike[order][1:] != alike[order][:-1]
    if unlike(take(own, order), np.flatnonzero(~starts) - 1).any():
        # Several rows have one hash: the first that is equal tells which belong together.
        numbered = own.with_columns(pl.Series("#", np.arange(len(at))))
        first = numbered.select(pl.first("#").over(own.columns)).to_series().to_numpy()
        order = np.argsort(first, kind="stable")
        starts[1:] = first[order][1:] != first[order][:-1]
    begins = np.flatnonzero(starts)
    places = at[order[begins]]
    kept = np.ones(len(batch), np.bool_)
    kept[at] = False
    kept[places] = True
    sums: list[Any] = []
    for name, added in zip(layout.sums, _added(layout, take(rows, order), begins), strict=True):
        column = batch.frame[name].to_numpy().copy()
        column[places] = added
        sums.append(column[kept])
    left = np.flatnonzero(kept)
    return Batch(batch.codes[left], _with_sums(layout, take(batch.frame, left), sums), batch.bounds)


def unlike(frame: pl.DataFrame, places: Places) -> Any:
    """Return for each of these places whether its row and the next one differ."""
    if not len(places):
        return np.zeros(0, np.bool_)
    return differing(take(frame, places).get_columns(), take(frame, places + 1).get_columns())


def differing(ones: Sequence[pl.Series], others: Sequence[pl.Series]) -> Any:
    """Return of each pair of rows whether they differ in one of the columns. Nulls are equal, and NaN are."""
    found = np.zeros(len(ones[0]), np.bool_)
    for one, other in zip(ones, others, strict=True):
        nullable = one.null_count() or other.null_count()
        found |= (one.ne_missing(other) if nullable else one != other).to_numpy()
    return found


def select(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Return columns in this order, without planning a query."""
    return pl.DataFrame([frame[name] for name in names])


def take(frame: pl.DataFrame, places: Places) -> pl.DataFrame:
    """Return the rows at these places."""
    return frame[pl.Series(places.astype(np.uint32))]
