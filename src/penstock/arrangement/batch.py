"""A batch: rows of columns, sorted by the codes of their keys, that never change."""

from __future__ import annotations

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
    sums. """

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
    return _settled(layout, _sorted(layout, layout.codes_of(frame), frame.select(list(layout.types))))


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
        found |= one[name].ne_missing(other[name]).to_numpy()
    return found


def _settled(layout: Layout, batch: Batch) -> Batch:
    """Add up what is equal: all rows of a key if they only have sums, else those that some row takes back."""
    if not len(batch):
        return batch
    if not layout.values:
        return _summed(layout, batch)
    negative = np.zeros(len(batch), np.bool_)
    for name in layout.sums:
        negative |= batch.frame[name].to_numpy() < 0
    if not negative.any():
        return _present(layout, batch)
    return _cancelled(layout, batch, negative)


def _summed(layout: Layout, batch: Batch) -> Batch:
    starts = np.flatnonzero(key_starts(layout, batch))
    sums = [batch.frame[name].to_numpy() for name in layout.sums]
    codes, frame = batch.codes, batch.frame
    if len(starts) < len(batch):
        longest = int(np.diff(np.append(starts, len(batch))).max())
        for column in sums:
            check_sums(column, longest)
        sums = [np.add.reduceat(column, starts) for column in sums]
        codes, frame = codes[starts], take(frame, starts)
    return _present(layout, Batch(codes, frame.with_columns(*map(pl.Series, layout.sums, sums))))


def _present(layout: Layout, batch: Batch) -> Batch:
    """Leave out rows whose sums are all zero."""
    present = np.zeros(len(batch), np.bool_)
    for name in layout.sums:
        present |= batch.frame[name].to_numpy() != 0
    if present.all():
        return batch
    return Batch(batch.codes[present], batch.frame.filter(pl.Series(present)))


def key_starts(layout: Layout, batch: Batch) -> Any:
    """Return of each row whether it is the first of its key."""
    starts = np.ones(len(batch), np.bool_)
    starts[1:] = batch.codes[1:] != batch.codes[:-1]
    if not layout.exact and len(batch) > 1:
        starts[1:] |= _differs(layout, batch.frame)
    return starts


def _cancelled(layout: Layout, batch: Batch, negative: Any) -> Batch:
    """Add up equal rows of the keys that have a negative row."""
    starts = key_starts(layout, batch)
    numbers = np.cumsum(starts) - 1
    concerned = np.zeros(int(numbers[-1]) + 1, np.bool_)
    concerned[numbers[negative]] = True
    at = np.flatnonzero(concerned[numbers])
    for name in layout.sums:
        check_sums(batch.frame[name].to_numpy()[at], len(at))
    rows = take(batch.frame, at).with_columns(pl.Series("#", at))
    alike = rows.group_by([name for name in layout.types if name not in layout.sums], maintain_order=True)
    left = alike.agg(pl.first("#"), *(pl.sum(name) for name in layout.sums))
    left = left.filter(pl.any_horizontal(pl.col(layout.sums) != 0))
    kept = np.ones(len(batch), np.bool_)
    kept[at] = False
    kept[left["#"].to_numpy()] = True
    sums: list[pl.Series] = []
    for name in layout.sums:
        column = batch.frame[name].to_numpy().copy()
        column[left["#"].to_numpy()] = left[name].to_numpy()
        sums.append(pl.Series(name, column))
    return Batch(batch.codes[kept], batch.frame.with_columns(*sums).filter(pl.Series(kept)))


def check_sums(column: Any, count: int) -> None:
    """Raise `SumOverflow` unless 64 bits hold the sum of any `count` of these integers."""
    if len(column) and max(int(column.max()), -int(column.min())) * count >= 2**63:
        raise SumOverflow


def take(frame: pl.DataFrame, places: Places) -> pl.DataFrame:
    """Return the rows at these places."""
    return frame[pl.Series(places.astype(np.uint32))]
