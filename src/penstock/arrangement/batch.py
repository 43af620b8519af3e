"""A batch: rows of columns, sorted by the codes of their keys, that never change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import polars as pl

from penstock.arrangement.codes import Codes, codes_of, is_exact

Numbers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
Places: TypeAlias = Numbers
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
    """Rows sorted by `codes`; those of one key lie side by side, unless several keys have one code.

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


def bounded(layout: Layout, codes: Codes, frame: pl.DataFrame) -> Batch:
    """Return sorted rows as a batch with the bounds that they have."""
    return Batch(codes, frame, _bounds([frame[name].to_numpy() for name in layout.sums]))


def _bounds(sums: Iterable[Numbers]) -> tuple[float, ...]:
    return tuple(float(np.abs(column.astype(np.float64)).sum()) for column in sums)


def batch_of(layout: Layout, frame: pl.DataFrame) -> Batch:
    """Sort rows into a batch. Equal rows are added up where one of them takes back another."""
    codes = layout.codes_of(layout.keys_of(frame))
    return _settled(layout, codes, select(frame, layout.types))


def merged(layout: Layout, first: Batch, second: Batch) -> Batch:
    """Merge two batches; of equal keys the rows of the first one come first."""
    codes = np.concatenate((first.codes, second.codes))
    return _settled(layout, codes, pl.concat((first.frame, second.frame)))


def _hashes(layout: Layout, frame: pl.DataFrame) -> Codes:
    """Return hashes of rows, of all that codes do not tell apart."""
    names = layout.values if layout.exact else (*layout.keys, *layout.values)
    return codes_of([frame[name] for name in names], exact=False)


def _settled(layout: Layout, codes: Codes, frame: pl.DataFrame) -> Batch:
    """Sort rows and add up what is equal: all rows of a key, or those of them that some row takes back."""
    order = _order(layout, codes, frame)
    sums = [frame[name].to_numpy() for name in layout.sums]
    if order is not None:
        codes, sums = codes[order], [column[order] for column in sums]
    if layout.values:
        kept, added = _summed_rows(layout, codes, sums, frame, order)
    else:
        kept, added = _summed_keys(layout, codes, sums, frame, order)
    present = np.zeros(len(kept), np.bool_)
    for column in added:
        present |= column != 0
    if not present.all():
        kept, added = kept[present], [column[present] for column in added]
    unmoved = order is None and len(kept) == len(codes)
    made = frame.clone() if unmoved else take(frame, kept if order is None else order[kept])
    for name, column, before in zip(layout.sums, added, sums, strict=True):
        if column is not before:
            made.replace_column(made.get_column_index(name), pl.Series(name, column))
    return Batch(codes if unmoved else codes[kept], made, _bounds(added))


def _order(layout: Layout, codes: Codes, frame: pl.DataFrame) -> Places | None:
    """Return the places of rows as sorted; None if they are."""
    if layout.order:
        apart = () if layout.exact else layout.keys
        by = [Order("#", False), *(Order(key, False) for key in apart), *layout.order]
        return ordered(frame.with_columns(pl.Series("#", codes)), by)
    order = ascending(codes)
    if layout.exact or layout.values:
        return order
    alike = codes if order is None else codes[order]
    if _unlike(select(frame, layout.keys), order, np.flatnonzero(alike[1:] == alike[:-1])).any():
        # Several keys have one code: rows of each are brought side by side.
        return ordered(
            frame.with_columns(pl.Series("#", codes)), [Order(name, False) for name in ("#", *layout.keys)]
        )
    return order


def ascending(codes: Codes) -> Places | None:
    """Return the places of numbers as sorted, equal ones in their order; None if they are sorted."""
    descents = int(np.count_nonzero(codes[1:] < codes[:-1]))
    if not descents:
        return None
    if descents < _RUNS or len(codes) < _FEW:
        return np.argsort(codes, kind="stable")
    places = pl.arg_sort_by([pl.col("#")], maintain_order=True)
    return pl.DataFrame([pl.Series("#", codes)]).select(places).to_series().to_numpy().astype(np.int64)


_RUNS, _FEW = 64, 10_000
"""Sorted runs up to which NumPy merges them, and numbers up to which it sorts faster than Polars."""


def ordered(frame: pl.DataFrame, by: Sequence[Order]) -> Places:
    """Return the places of rows as sorted."""
    descending = [each.descending for each in by]
    columns = [pl.col(each.column) for each in by]
    places = pl.arg_sort_by(columns, descending=descending, nulls_last=descending, maintain_order=True)
    return frame.select(places).to_series().to_numpy().astype(np.int64)


def _summed_keys(
    layout: Layout, codes: Codes, sums: list[Numbers], frame: pl.DataFrame, order: Places | None
) -> tuple[Places, list[Numbers]]:
    """Add up the rows of each key. Return the places of the first ones, as sorted, and the sums."""
    starts = np.ones(len(codes), np.bool_)
    starts[1:] = codes[1:] != codes[:-1]
    if not layout.exact:
        same = np.flatnonzero(~starts) - 1
        starts[same + 1] = _unlike(select(frame, layout.keys), order, same)
    begins = np.flatnonzero(starts)
    if len(begins) == len(codes):
        return begins, sums
    return begins, _carried(layout, [np.add.reduceat(column, begins) for column in sums])


def _summed_rows(
    layout: Layout,
    codes: Codes,
    sums: list[Numbers],
    frame: pl.DataFrame,
    order: Places | None,
) -> tuple[Places, list[Numbers]]:
    """Add up equal rows of the codes with rows that take back others. Return the places left, and the sums.

    The first of equal rows stays in its place. Only these rows are hashed: in a merge they are few.
    """
    at = _mixed(codes, sums)
    kept = np.arange(len(codes))
    if not len(at):
        return kept, sums
    rows = select(frame, (*layout.keys, *layout.values))
    hashes = _hashes(layout, take(rows, at if order is None else order[at]))
    alike = np.lexsort((hashes, codes[at]))
    places, hashes = at[alike], hashes[alike]
    starts = np.ones(len(at), np.bool_)
    starts[1:] = (hashes[1:] != hashes[:-1]) | (codes[places][1:] != codes[places][:-1])
    same = np.flatnonzero(~starts) - 1
    if _unlike(rows, places if order is None else order[places], same).any():
        # Several rows have one hash: the first that is equal tells which belong together.
        own = take(rows, places if order is None else order[places])
        numbered = own.with_columns(pl.Series("#", np.arange(len(at))))
        first = numbered.select(pl.first("#").over(own.columns)).to_series().to_numpy()
        again = np.lexsort((places, first))
        places, first = places[again], first[again]
        starts[1:] = first[1:] != first[:-1]
    begins = np.flatnonzero(starts)
    if len(begins) == len(at):
        return kept, sums
    stays = np.ones(len(codes), np.bool_)
    stays[places] = False
    stays[places[begins]] = True
    totals: list[Numbers] = []
    for column in sums:
        total = column.copy()
        total[places[begins]] = np.add.reduceat(column[places], begins)
        totals.append(total[stays])
    return kept[stays], totals


def _mixed(codes: Codes, sums: Sequence[Numbers]) -> Places:
    """Return the places of the codes with rows of both signs."""
    if not any(len(column) and column.min() < 0 < column.max() for column in sums):
        return np.empty(0, np.int64)
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    mixed = np.zeros(len(starts), np.bool_)
    for column in sums:
        mixed |= (np.minimum.reduceat(column, starts) < 0) & (np.maximum.reduceat(column, starts) > 0)
    return np.flatnonzero(np.repeat(mixed, np.diff(starts, append=len(codes))))


def _carried(layout: Layout, sums: list[Any]) -> list[Any]:
    """Carry what wide sums have beyond their lower bits, so that equal ones look alike."""
    at = {name: number for number, name in enumerate(layout.sums)}
    for low, high in chain.from_iterable(map(pairwise, layout.wide)):
        lower = sums[at[low]]
        sums[at[high]] = sums[at[high]] + (lower >> WIDE_BITS)
        sums[at[low]] = lower & ((1 << WIDE_BITS) - 1)
    return sums


def _unlike(frame: pl.DataFrame, order: Places | None, places: Places) -> Any:
    """Return for each of these places of rows in an order whether its row and the next one differ."""
    if order is None:
        return unlike(frame, places)
    if not len(places):
        return np.zeros(0, np.bool_)
    return differing(take(frame, order[places]).get_columns(), take(frame, order[places + 1]).get_columns())


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
