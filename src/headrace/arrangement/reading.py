"""Reading of single rows of an arrangement, and of all, in parts of bounded size.

All are read in ranges of codes, so that equal rows of several batches come together and are added up.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headrace.arrangement.batch import Batch, Layout, merged, select, take
from headrace.arrangement.codes import codes_of
from headrace.arrangement.spine import Spine
from headrace.expr.deferred_imports import np, pl

_NOWHERE = range(0)
_FEW = 4
"""Rows up to which they are read faster one by one."""


class RowReader:
    """Reader of single rows of a batch. row: returns the one at a place. columns: of such a row."""

    __slots__ = ("_codes", "_frame", "batch", "row")

    def __init__(self, batch: Batch, columns: Sequence[str]) -> None:
        self.batch = batch
        self._frame = select(batch.frame, columns)
        self.row = self._frame.row
        codes: Any = np.ascontiguousarray(batch.codes)
        self._codes: Any = memoryview(codes)

    def places(self, code: int) -> range:
        """Return the places of the rows with a code."""
        codes = self._codes
        start = bisect_left(codes, code)
        if start == len(codes) or codes[start] != code:
            return _NOWHERE
        end = start + 1
        if end < len(codes) and codes[end] == code:
            end = bisect_right(codes, code, end)
        return range(start, end)

    def rows(self, places: range) -> list[tuple[Any, ...]]:
        """Return the rows at places side by side."""
        if len(places) < _FEW:
            return list(map(self.row, places))
        return self._frame.slice(places.start, len(places)).rows()


class RowReaders:
    """Readers of single rows of all batches of a spine, as it is at the time."""

    def __init__(self, spine: Spine, columns: Sequence[str]) -> None:
        self._spine = spine
        self._columns = columns
        self._batches: tuple[Batch, ...] = ()
        self._readers: list[RowReader] = []

    def current(self) -> list[RowReader]:
        """Return the reader of each batch, in their order."""
        if self._spine.batches is not self._batches:
            known = {id(reader.batch): reader for reader in self._readers}
            self._batches = self._spine.batches
            self._readers = [known.get(id(b)) or RowReader(b, self._columns) for b in self._batches]
        return self._readers


def ranges(batches: Iterable[Batch], most: int) -> Iterator[list[Batch]]:
    """Yield the rows of all batches in ranges of codes, about `most` at a time: of each batch those it has.

    Rows of one code come together, however many they are.
    """
    left: list[Batch] = [batch for batch in batches if len(batch)]
    while left:
        share, least = most / sum(map(len, left)), most // len(left)
        # Of batches whose codes lie apart, one is taken at a time: a share of it would never be all of it.
        ends = [min(max(int(share * len(batch)), least), len(batch) - 1) for batch in left]
        last = min(int(batch.codes[end]) for batch, end in zip(left, ends, strict=True))
        ends = [int(np.searchsorted(batch.codes, last, "right")) for batch in left]
        yield [batch.slice(0, end) for batch, end in zip(left, ends, strict=True) if end]
        rest = [batch.slice(end, len(batch)) for batch, end in zip(left, ends, strict=True)]
        left = [batch for batch in rest if len(batch)]


def all_rows(layout: Layout, batches: Iterable[Batch], most: int) -> Iterator[pl.DataFrame]:
    """Yield the rows of all batches, about `most` at a time, equal ones added up: each row once."""
    for parts in ranges(batches, most):
        yield from _together(layout, parts)


def _together(layout: Layout, parts: list[Batch]) -> Iterator[pl.DataFrame]:
    """Yield the rows of some batches, equal ones added up. Most are in the largest, and nowhere else."""
    largest = max(parts, key=len)
    others = [part for part in parts if part is not largest]
    if others:
        touched = np.isin(largest.codes, np.concatenate([part.codes for part in others]))
        alone, met = np.flatnonzero(~touched), np.flatnonzero(touched)
        if len(met):
            others.insert(0, Batch(largest.codes[met], take(largest.frame, met), largest.bounds))
            largest = Batch(largest.codes[alone], take(largest.frame, alone), largest.bounds)
        yield _each_once(layout, merged(layout, others))
    yield _each_once(layout, largest)


def _each_once(layout: Layout, batch: Batch) -> pl.DataFrame:
    """Return the rows with equal ones added up; those of one sign are not in a batch."""
    same = np.zeros(len(batch) + 1, np.bool_)
    same[1:-1] = batch.codes[1:] == batch.codes[:-1]
    several = np.flatnonzero(same[1:] | same[:-1])
    if not len(several):
        return batch.frame
    rows = take(batch.frame, several)
    names = (*layout.keys, *layout.values)
    hashes = codes_of([rows[name] for name in names], exact=False)
    if len(np.unique(hashes)) == len(hashes):
        return batch.frame
    added = rows.lazy().group_by(names, maintain_order=True).agg(pl.col(layout.sums).sum())
    others = take(batch.frame, np.flatnonzero(~(same[1:] | same[:-1])))
    return pl.concat(
        [others, added.filter(pl.any_horizontal(pl.col(layout.sums) != 0)).select(others.columns).collect()]
    )
