"""Reading of an arrangement: single rows, the first rows of keys, and all rows in parts of bounded size."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from headrace.arrangement.batch import (
    Layout,
    Order,
    Places,
    SortedBatch,
    concat_frames,
    differing,
    differs_from_next,
    merged,
    row_order,
    select,
    take,
)
from headrace.arrangement.codes import codes_of
from headrace.arrangement.spine import FoundRows, Probe, Spine
from headrace.requirements import np, pl

_NOWHERE = range(0)
_FEW = 4
"""Rows up to which they are read faster one by one."""


class RowReader:
    """Reader of single rows of a batch. row: returns the row at a position. columns: names of its columns."""

    __slots__ = ("_codes", "_rows", "batch", "row")

    def __init__(self, batch: SortedBatch, columns: Sequence[str]) -> None:
        self.batch = batch
        self._rows = batch.single_rows(columns)
        self.row = self._rows.row
        codes: Any = np.ascontiguousarray(batch.codes)
        self._codes: Any = memoryview(codes)

    def places(self, code: int) -> range:
        """Return the positions of the rows with a code."""
        codes = self._codes
        start = bisect_left(codes, code)
        if start == len(codes) or codes[start] != code:
            return _NOWHERE
        end = start + 1
        if end < len(codes) and codes[end] == code:
            end = bisect_right(codes, code, end)
        return range(start, end)

    def rows(self, places: range) -> list[tuple[Any, ...]]:
        """Return the rows at consecutive positions."""
        if len(places) < _FEW:
            return list(map(self.row, places))
        return self._rows.slice(places.start, len(places)).rows()


class RowReaders:
    """Readers of single rows, one for each batch currently in a spine."""

    def __init__(self, spine: Spine, columns: Sequence[str]) -> None:
        self._spine = spine
        self._columns = columns
        self._batches: tuple[SortedBatch, ...] = ()
        self._readers: list[RowReader] = []

    def current(self) -> list[RowReader]:
        """Return the reader of each batch, in the order of the batches."""
        if self._spine.batches is not self._batches:
            known = {id(reader.batch): reader for reader in self._readers}
            self._batches = self._spine.batches
            self._readers = [known.get(id(b)) or RowReader(b, self._columns) for b in self._batches]
        return self._readers


def ranges(batches: Iterable[SortedBatch], most: int) -> Iterator[list[SortedBatch]]:
    """Yield the rows of all batches by range of codes, about `most` at a time, as slices of the batches.

    Rows of one code come together, however many they are.
    """
    left: list[SortedBatch] = [batch for batch in batches if len(batch)]
    while left:
        share, least = most / sum(map(len, left)), most // len(left)
        # Of batches whose codes lie apart, one is taken at a time: a share of it would never be all of it.
        ends = [min(max(int(share * len(batch)), least), len(batch) - 1) for batch in left]
        last = min(int(batch.codes[end]) for batch, end in zip(left, ends, strict=True))
        ends = [int(np.searchsorted(batch.codes, last, "right")) for batch in left]
        yield [batch.slice(0, end) for batch, end in zip(left, ends, strict=True) if end]
        rest = [batch.slice(end, len(batch)) for batch, end in zip(left, ends, strict=True)]
        left = [batch for batch in rest if len(batch)]


def all_rows(layout: Layout, batches: Iterable[SortedBatch], most: int) -> Iterator[pl.DataFrame]:
    """Yield the distinct rows of all batches, about `most` at a time, with equal rows added up."""
    for parts in ranges(batches, most):
        yield from _together(layout, parts)


def _together(layout: Layout, parts: list[SortedBatch]) -> Iterator[pl.DataFrame]:
    """Yield the rows of some batches, with equal rows added up. Most are only in the largest batch."""
    largest = max(parts, key=len)
    others = [part for part in parts if part is not largest]
    if others:
        touched = np.isin(largest.codes, np.concatenate([part.codes for part in others]))
        alone, met = np.flatnonzero(~touched), np.flatnonzero(touched)
        if len(met):
            others.insert(0, SortedBatch(largest.codes[met], largest.take(met), largest.bounds))
            largest = SortedBatch(largest.codes[alone], largest.take(alone), largest.bounds)
        yield _each_once(layout, merged(layout, others))
    yield _each_once(layout, largest)


def _each_once(layout: Layout, batch: SortedBatch) -> pl.DataFrame:
    """Return the rows with equal ones added up: a batch may repeat equal rows of the same sign."""
    same = np.zeros(len(batch) + 1, np.bool_)
    same[1:-1] = batch.codes[1:] == batch.codes[:-1]
    several = np.flatnonzero(same[1:] | same[:-1])
    if not len(several):
        return batch.frame
    rows = batch.take(several)
    names = (*layout.keys, *layout.values)
    hashes = codes_of([rows[name] for name in names], exact=False)
    if len(np.unique(hashes)) == len(hashes):
        return batch.frame
    added = rows.lazy().group_by(names, maintain_order=True).agg(pl.col(layout.sums).sum())
    others = batch.take(np.flatnonzero(~(same[1:] | same[:-1])))
    return pl.concat(
        [others, added.filter(pl.any_horizontal(pl.col(layout.sums) != 0)).select(others.columns).collect()]
    )


_MORE = 16
"""Rows per key and batch that are looked at beyond the wanted ones, for those that are taken back."""

_ASKED, _CUT, _NEW = "#asked", "#cut", "#new"


class FirstRowsChange(NamedTuple):
    """First rows of keys before and after a batch is added; the same object if found to be equal."""

    before: FoundRows
    after: FoundRows


def first_rows(
    layout: Layout,
    batches: Sequence[SortedBatch],
    keys: Sequence[pl.Series],
    count: int,
    *,
    more: int | None = None,
) -> FoundRows:
    """Return each key's first rows with positive counts, until `count` copies are reached.

    layout: has an order; its first sum is the number of copies, and the only one that is looked at. Equal
        rows are one; the last of a key may have more copies than wanted. Rows of one key come in order.
    more: rows per key and batch that are looked at beyond `count` at first.
    """
    return change_of_first_rows(layout, batches, None, keys, count, more=more).after


def change_of_first_rows(
    layout: Layout,
    batches: Sequence[SortedBatch],
    new: SortedBatch | None,
    keys: Sequence[pl.Series],
    count: int,
    *,
    more: int | None = None,
) -> FirstRowsChange:
    """Return each key's first rows, without and with a new batch."""
    asked = np.arange(len(keys[0]))
    every = [batch for batch in (*batches, *([] if new is None else [new])) if len(batch)]
    parts: list[FirstRowsChange] = []
    limit = count + (_MORE if more is None else more)
    while len(asked) and every:
        left = keys if not parts else take(pl.DataFrame(list(keys)), asked).get_columns()
        probe = Probe.of(layout, left)
        looked = _beginnings(layout, every, new, probe, limit)
        found, done = _trusted(layout, looked, len(asked), count)
        before, after = (FoundRows(asked[each.asked], each.rows) for each in found)
        parts.append(FirstRowsChange(before, before if found[0] is found[1] else after))
        asked = asked[~done]
        limit *= 8
    if len(parts) == 1:
        return parts[0]
    if not parts:
        nothing = FoundRows(asked[:0], pl.DataFrame(schema=layout.types))
        return FirstRowsChange(nothing, nothing)
    return FirstRowsChange(
        _in_order([part.before for part in parts]), _in_order([part.after for part in parts])
    )


def _in_order(parts: Sequence[FoundRows]) -> FoundRows:
    asking = np.concatenate([part.asked for part in parts])
    order = np.argsort(asking, kind="stable")
    return FoundRows(asking[order], take(concat_frames([part.rows for part in parts]), order))


def _beginnings(
    layout: Layout, batches: Sequence[SortedBatch], new: SortedBatch | None, probe: Probe, limit: int
) -> pl.DataFrame:
    """Return each key's first rows per batch, with the key's number, marking the last one if more follow."""
    rows, numbers, cuts, news = list[pl.DataFrame](), list[Places](), list[Any](), list[Any]()
    ends, of_ends = list[pl.DataFrame](), list[Places]()
    for batch in batches:
        low = np.searchsorted(batch.codes, probe.codes, "left")
        high = np.searchsorted(batch.codes, probe.codes, "right")
        hit = np.flatnonzero(high > low)
        if not len(hit) and batch is not batches[-1]:
            continue
        low, high = low[hit], high[hit]
        asked = hit if probe.order is None else probe.order[hit]
        sizes = high - low
        taken = np.minimum(sizes, limit)
        skipped = np.cumsum(taken) - taken - low
        places = np.arange(int(taken.sum())) - np.repeat(skipped, taken)
        cut = np.zeros(len(places), np.bool_)
        more = np.flatnonzero(taken < sizes)
        cut[(np.cumsum(taken) - 1)[more]] = True
        if not layout.exact and len(more):
            # The keys of one code lie in order, so that a range is of one key if both its ends are.
            for at in (low[more], high[more] - 1):
                ends.append(select(batch.take(at), layout.keys))
                of_ends.append(asked[more])
        rows.append(batch.take(places))
        numbers.append(np.repeat(asked, taken))
        cuts.append(cut)
        news.append(np.full(len(places), batch is new))
    asked, cut = np.concatenate(numbers), np.concatenate(cuts)
    looked = concat_frames(rows).hstack(
        [
            pl.Series(_ASKED, asked.astype(np.int64)),
            pl.Series(_CUT, cut),
            pl.Series(_NEW, np.concatenate(news)),
        ]
    )
    if layout.exact or not len(asked):
        return looked
    keys = pl.DataFrame(list(probe.keys))
    if ends:
        own = take(keys, np.concatenate(of_ends)).get_columns()
        if differing(own, concat_frames(ends).get_columns()).any():
            # A range of several keys is looked at whole.
            return _beginnings(layout, batches, new, probe, max(map(len, batches)))
    others = differing(take(keys, asked).get_columns(), layout.keys_of(looked))
    return take(looked, np.flatnonzero(~others)) if others.any() else looked


def _trusted(
    layout: Layout, looked: pl.DataFrame, asked: int, count: int
) -> tuple[tuple[FoundRows, FoundRows], Any]:
    """Return the first rows up to where a batch may have earlier ones, and the keys with enough of them.

    The rows without the new batch, then with it.
    """
    looked = take(looked, row_order(looked, [Order(_ASKED, False), *layout.order]))
    numbers = looked[_ASKED].to_numpy()
    done = np.ones(asked, np.bool_)
    if not looked.height:
        nothing = FoundRows(numbers, select(looked, layout.types))
        return (nothing, nothing), done
    starts = np.ones(looked.height, np.bool_)
    starts[1:] = differs_from_next(
        select(looked, (_ASKED, *(each.column for each in layout.order))), np.arange(looked.height - 1)
    )
    begins = np.flatnonzero(starts)
    weights = looked[layout.sums[0]].to_numpy()
    # What equals the row at which a batch was cut, or comes after it, may have more to it.
    cuts = np.flatnonzero(np.logical_or.reduceat(looked[_CUT].to_numpy(), begins))
    of = numbers[begins]
    horizon = np.full(asked, len(begins))
    np.minimum.at(horizon, of[cuts], cuts)
    trusted = np.arange(len(begins)) < horizon[of]
    versions: list[tuple[Places, Places]] = []
    for each in (np.where(looked[_NEW].to_numpy(), 0, weights), weights):
        copies = np.add.reduceat(each, begins)
        at = np.flatnonzero((copies > 0) & trusted)
        before = np.cumsum(copies[at]) - copies[at]
        own = of[at]
        firsts = np.ones(len(at), np.bool_)
        firsts[1:] = own[1:] != own[:-1]
        before -= np.repeat(before[firsts], np.diff(np.flatnonzero(firsts), append=len(at)))
        at = at[before < count]
        reached = np.zeros(asked, np.int64)
        np.add.at(reached, of[at], copies[at])
        done &= (reached >= count) | (horizon == len(begins))
        versions.append((at, copies[at]))
    found: list[FoundRows] = []
    for at, copies in versions:
        if found and all(map(np.array_equal, versions[0], (at, copies))):
            return (found[0], found[0]), done
        kept = done[of[at]]
        rows = select(take(looked, begins[at[kept]]), layout.types)
        weight = layout.sums[0]
        rows.replace_column(rows.get_column_index(weight), pl.Series(weight, copies[kept]))
        found.append(FoundRows(of[at[kept]], rows))
    return (found[0], found[1]), done
