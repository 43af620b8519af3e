"""A batch: rows of columns, sorted by the codes of their keys, that never change."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import polars as pl

from penstock.arrangement.codes import Codes, codes_of, is_exact

Places: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
"""Numbers of rows."""


class SumOverflow(Exception):
    """Exception for sums that 64 bits may not hold. Nothing has changed."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What the columns of an arrangement are.

    types: of all columns, by name. keys: columns that rows are found by.
    sums:  columns of 64-bit integers that are added when rows are equal in all others; a row whose sums are
    all
           zero is not there.
    nullable: whether a key may be null.

    A collection of rows has its weights as the only sums. An aggregate of groups has no columns but keys and
    sums."""

    types: dict[str, pl.DataType]
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    nullable: bool

    @property
    def exact(self) -> bool:
        """Return whether codes are equal only where keys are."""
        return is_exact([self.types[key] for key in self.keys], self.nullable)

    @property
    def values(self) -> tuple[str, ...]:
        """Return the columns that are neither keys nor sums."""
        return tuple(name for name in self.types if name not in self.keys and name not in self.sums)

    def codes_of(self, frame: pl.DataFrame) -> Codes:
        """Return the codes of the rows' keys."""
        return codes_of([frame[key] for key in self.keys], exact=self.exact)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows sorted by `codes`; those of one key lie side by side.

    A key is there once if there are no columns but keys and sums.
    """

    codes: Codes
    frame: pl.DataFrame

    def __len__(self) -> int:
        return len(self.codes)


def batch_of(layout: Layout, frame: pl.DataFrame) -> Batch:
    """Sort rows into a batch. Raises `SumOverflow`."""
    return _settled(layout, _sorted(layout, layout.codes_of(frame), select(frame, layout.types)))


def merged(layout: Layout, first: Batch, second: Batch) -> Batch:
    """Merge two batches; of equal keys the rows of the first one come first. Raises `SumOverflow`."""
    return _settled(
        layout,
        _sorted(layout, np.concatenate((first.codes, second.codes)), pl.concat((first.frame, second.frame))),
    )


def _sorted(layout: Layout, codes: Codes, frame: pl.DataFrame) -> Batch:
    if bool((codes[1:] < codes[:-1]).any()):
        order = np.argsort(codes, kind="stable")  # two sorted runs are merged
        codes, frame = codes[order], take(frame, order)
    if not layout.exact:
        codes, frame = _apart(layout, codes, frame)
    return Batch(codes, frame)


def _apart(layout: Layout, codes: Codes, frame: pl.DataFrame) -> tuple[Codes, pl.DataFrame]:
    """Bring rows of one key side by side where several keys have one code."""
    same = codes[1:] == codes[:-1]
    if not bool((same & _differs(layout, frame)).any()):
        return codes, frame
    keys = frame.select(layout.keys).with_columns(pl.Series("", codes))
    order = keys.select(pl.arg_sort_by("", *layout.keys, maintain_order=True)).to_series()
    return codes, take(frame, order.to_numpy())


def _differs(layout: Layout, frame: pl.DataFrame) -> Any:
    """Return of each row but the first whether its key is another than that of the row before."""
    return differs(frame.slice(1), frame.head(max(frame.height - 1, 0)), layout.keys)


def differs(one: pl.DataFrame, other: pl.DataFrame, columns: tuple[str, ...]) -> Any:
    """Return of each pair of rows whether they differ in one of the columns; nulls are equal, and NaN are."""
    found = np.zeros(one.height, np.bool_)
    for name in columns:
        found |= _unequal(one[name], other[name])
    return found


def _unequal(one: pl.Series, other: pl.Series) -> Any:
    if one.null_count() or other.null_count():
        return one.ne_missing(other).to_numpy()
    return (one != other).to_numpy()


def _settled(layout: Layout, batch: Batch) -> Batch:
    """Add up what is equal: all rows of a key if they only have sums, else those that some row takes back."""
    if not len(batch):
        return batch
    if not layout.values:
        return _summed(layout, batch)
    starts = np.flatnonzero(key_starts(layout, batch))
    mixed = np.zeros(len(starts), np.bool_)
    for name in layout.sums:
        column = batch.frame[name].to_numpy()
        if column.min() < 0 < column.max():
            mixed |= (np.minimum.reduceat(column, starts) < 0) & (np.maximum.reduceat(column, starts) > 0)
    if mixed.any():
        batch = _cancelled(layout, batch, np.flatnonzero(np.repeat(mixed, lengths(starts, len(batch)))))
    return _present(layout, batch)


def _summed(layout: Layout, batch: Batch) -> Batch:
    starts = np.flatnonzero(key_starts(layout, batch))
    if len(starts) == len(batch):
        return _present(layout, batch)
    sums = _added(layout, batch.frame, starts)
    return _present(layout, Batch(batch.codes[starts], with_sums(layout, take(batch.frame, starts), sums)))


def _added(layout: Layout, frame: pl.DataFrame, starts: Places) -> list[Any]:
    """Add up the sums of rows that lie side by side, from each start to the next."""
    longest = int(lengths(starts, frame.height).max())
    columns = [frame[name].to_numpy() for name in layout.sums]
    for column in columns:
        check_sums(column, longest)
    return [np.add.reduceat(column, starts) for column in columns]


def _present(layout: Layout, batch: Batch) -> Batch:
    """Leave out rows whose sums are all zero."""
    present = np.zeros(len(batch), np.bool_)
    for name in layout.sums:
        present |= batch.frame[name].to_numpy() != 0
    if present.all():
        return batch
    at = np.flatnonzero(present)
    return Batch(batch.codes[at], take(batch.frame, at))


def key_starts(layout: Layout, batch: Batch) -> Any:
    """Return of each row whether it is the first of its key."""
    starts = np.ones(len(batch), np.bool_)
    starts[1:] = batch.codes[1:] != batch.codes[:-1]
    if not layout.exact and len(batch) > 1:
        starts[1:] |= _differs(layout, batch.frame)
    return starts


def _cancelled(layout: Layout, batch: Batch, at: Places) -> Batch:
    """Add up rows that are equal, among those at some places. The first of them stays in its place."""
    names = (*layout.keys, *layout.values)
    rows = take(batch.frame, at)
    alike = codes_of([rows[name] for name in names], exact=False)
    order = np.argsort(alike, kind="stable")
    rows, alike = take(rows, order), alike[order]
    starts = np.ones(len(at), np.bool_)
    starts[1:] = alike[1:] != alike[:-1]
    if bool((~starts[1:] & differs(rows.slice(1), rows.head(len(at) - 1), names)).any()):
        # Several rows have one hash: the first that is equal tells which belong together.
        firsts = select(take(batch.frame, at), names).with_columns(pl.Series("#", np.arange(len(at))))
        first = firsts.select(pl.first("#").over(names))["#"].to_numpy()
        order = np.argsort(first, kind="stable")
        rows = take(batch.frame, at[order])
        starts[1:] = first[order][1:] != first[order][:-1]
    begins = np.flatnonzero(starts)
    sums = _added(layout, rows, begins)
    kept = np.ones(len(batch), np.bool_)
    kept[at] = False
    places = at[order[begins]]
    kept[places] = True
    columns: list[Any] = []
    for name, added in zip(layout.sums, sums, strict=True):
        column = batch.frame[name].to_numpy().copy()
        column[places] = added
        columns.append(column[kept])
    left = np.flatnonzero(kept)
    return Batch(batch.codes[left], with_sums(layout, take(batch.frame, left), columns))


def lengths(starts: Places, end: int) -> Places:
    """Return how far it is from each start to the next, or to the end."""
    return np.diff(starts, append=end)


def with_sums(layout: Layout, frame: pl.DataFrame, sums: list[Any]) -> pl.DataFrame:
    """Replace the sums of rows."""
    made = frame.clone()
    for name, column in zip(layout.sums, sums, strict=True):
        made.replace_column(made.get_column_index(name), pl.Series(name, column))
    return made


def check_sums(column: Any, count: int) -> None:
    """Raise `SumOverflow` unless 64 bits hold the sum of any `count` of these integers."""
    if len(column) and max(int(column.max()), -int(column.min())) * count >= 2**63:
        raise SumOverflow


def select(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Return columns in this order, without planning a query."""
    return pl.DataFrame([frame[name] for name in names])


def take(frame: pl.DataFrame, places: Places) -> pl.DataFrame:
    """Return the rows at these places."""
    return frame[pl.Series(places.astype(np.uint32))]
