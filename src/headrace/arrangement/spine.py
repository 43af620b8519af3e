"""Spines: the batches of one arrangement, kept few by incremental merging in each tick.

Their sizes fall from the first to the last. The last ones are merged once they are `MERGED` or more, of which
the first is no larger than the others together. The merge of large ones is spread over ticks, in proportion
to the rows that the ticks add, and until it ends they are read as before. So a tick costs what it adds, times
the number of sizes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from headrace.arrangement.batch import (
    Layout,
    Places,
    SortedBatch,
    batch_of,
    concat_frames,
    differing,
    merged,
    sorted_codes,
    take,
)
from headrace.arrangement.codes import Codes
from headrace.requirements import np, pl

MERGED = 4
"""Batches that are merged at once, at least."""

WORK = 12
"""Rows that merges move for each row that is added."""

AT_ONCE = 4_096
"""Rows that a merge moves at least each time it is advanced."""


LARGE = 32_768
"""Rows above which a merge looks for rows that are taken back, which most are in larger batches."""

RATIO = 4
"""Of the rows of a batch to those of all later ones, below which `gather` merges them."""

_MOST = 2**62
"""Bound of sums, with room for what floats round."""


class FoundRows(NamedTuple):
    """Rows found by a probe. asked: for each row, the number of the key it was found for."""

    asked: Places
    rows: pl.DataFrame


@dataclass(slots=True, eq=False)
class SpineMerge:
    """Merge in progress: pieces of the result, and the number of rows merged from each batch so far.

    net: whether it looks for rows that cancel each other. left: number of rows not yet merged.
    """

    batches: tuple[SortedBatch, ...]
    net: bool
    taken: list[int]
    left: int
    pieces: list[SortedBatch] = field(default_factory=list[SortedBatch])

    def advance(self, layout: Layout, rows: int) -> int:
        """Merge about `rows` more rows, keeping those of one code together, and return their number."""
        # Where the rows end, were they taken alternately in proportion to what is left of each.
        share = min(1.0, rows / self.left)
        ends = list(map(len, self.batches))
        if share < 1.0:
            going = [(b.codes, at) for b, at in zip(self.batches, self.taken, strict=True) if at < len(b)]
            last = min(own[min(at + int(share * (len(own) - at)), len(own) - 1)] for own, at in going)
            ends = [int(np.searchsorted(batch.codes, last, "right")) for batch in self.batches]
        spans = zip(self.batches, self.taken, ends, strict=True)
        parts = [batch.slice(at, end) for batch, at, end in spans if at < end]
        self.pieces.append(merged(layout, parts, net=self.net))
        self.taken = ends
        moved = sum(map(len, parts))
        self.left -= moved
        return moved

    def result(self) -> SortedBatch:
        pieces = self.pieces
        if len(pieces) == 1:
            return pieces[0]
        bounds = zip(*(piece.bounds for piece in pieces), strict=True)
        codes = np.concatenate([piece.codes for piece in pieces])
        return SortedBatch(codes, concat_frames([piece.frame for piece in pieces]), tuple(map(sum, bounds)))


class SumOverflow(Exception):
    """Exception for rows that could overflow a 64-bit sum together with the rows already present."""


class TooManyFound(Exception):
    """Exception for a probe that finds more rows in a batch than its limit."""


class Spine:
    """Arrangement to which batches of rows are added.

    merges: whether it merges its batches; otherwise its owner does.
    fixed:  number of leading batches that are never merged.
    """

    def __init__(self, layout: Layout, batches: Iterable[SortedBatch] = (), *, merges: bool = True) -> None:
        self.layout = layout
        self._work = WORK if merges else 0
        self.batches = tuple(batch for batch in batches if len(batch))
        self.fixed = 0
        self._merges: list[SpineMerge] = []
        """Of neighbours, each batch in one at most; the largest first."""

    def __len__(self) -> int:
        """Return the number of stored rows, including rows that cancel each other."""
        return sum(map(len, self.batches))

    def add(self, frame: pl.DataFrame) -> None:
        """Add rows, except those that cancel each other. Raises `SumOverflow`, adding nothing."""
        self.add_batch(self.prepare(frame, net=True))

    def prepare(self, frame: pl.DataFrame, *, net: bool = False) -> SortedBatch:
        """Make a batch of rows for `add_batch`. net: see `batch_of`. Raises `SumOverflow`."""
        batch = batch_of(self.layout, frame, net=net)
        if any(new + held >= _MOST for new, held in zip(batch.bounds, self.bounds, strict=True)):
            raise SumOverflow
        return batch

    def add_batch(self, batch: SortedBatch) -> None:
        """Add a batch made by `prepare`, and do a proportional share of merging."""
        if len(batch):
            self.batches = (*self.batches, batch)
            self.work(self._work * len(batch))

    def replace(self, batches: Sequence[SortedBatch]) -> None:
        """Replace each batch with one that has a subset of its rows, in the same order."""
        there = set(map(id, batches))
        self._merges = [m for m in self._merges if all(id(batch) in there for batch in m.batches)]
        # Whoever merges knows the batches by their places.
        self.batches = tuple(batch for batch in batches if len(batch)) if self._work else tuple(batches)

    def gather(self) -> None:
        """Merge the last small batches at once, if the spine does not merge by itself."""
        if self._work:
            return
        held, new = self.batches[: self.fixed], list(self.batches[self.fixed :])
        start, rows = len(new), 0
        for at in reversed(range(len(new))):
            # Behind a small one, too: sizes may alternate.
            if not rows or len(new[at]) < RATIO * rows:
                start = at
            rows += len(new[at])
        if new[start:]:
            new[start:] = [merged(self.layout, new[start:])]
        self.batches = (*held, *new)

    def branch(self) -> Spine:
        """Return a spine that starts with the present rows. Rows added to it do not affect this one."""
        branch = Spine(self.layout, self.batches)
        branch.fixed = len(branch.batches)
        return branch

    def grown(self) -> SortedBatch:
        """Return the rows added to a branch since its creation, as one batch for `add_batch`."""
        since = self.batches[self.fixed :]
        if len(since) == 1:
            return since[0]
        nothing = pl.DataFrame(schema=self.layout.types)
        return merged(self.layout, since, net=False) if since else batch_of(self.layout, nothing)

    def work(self, rows: int) -> None:
        """Merge about `rows` rows, doing the smallest merges first."""
        while rows > 0:
            self._begin_merges()
            if not self._merges:
                return
            merge = min(self._merges, key=lambda merge: merge.left)
            rows -= merge.advance(self.layout, max(rows, AT_ONCE))
            if not merge.left:
                self._merges.remove(merge)
                at, count = self.batches.index(merge.batches[0]), len(merge.batches)
                done = merge.result()
                self.batches = (
                    *self.batches[:at],
                    *([done] if len(done) else []),
                    *self.batches[at + count :],
                )

    def _begin_merges(self) -> None:
        """Begin to merge the last idle batches if they are many and the first has at most half of their rows.

        So rows are moved once for about each doubling of their number, and there are few batches.
        """
        busy = {id(batch) for merge in self._merges for batch in merge.batches}
        at = len(self.batches)
        while at > self.fixed and id(self.batches[at - 1]) not in busy:
            at -= 1
        for start in range(at, len(self.batches) - MERGED + 1):
            own = self.batches[start:]
            total = sum(map(len, own))
            if 2 * len(own[0]) <= total:
                net = start == 0 or total > LARGE
                self._merges.append(SpineMerge(own, net, [0] * len(own), total))
                return

    @property
    def bounds(self) -> tuple[float, ...]:
        """Return, for each sum, the approximate total of the absolute values of all rows."""
        nothing = (0.0,) * len(self.layout.sums)
        return tuple(map(sum, zip(nothing, *(batch.bounds for batch in self.batches), strict=True)))

    def probe(self, keys: Sequence[pl.Series]) -> FoundRows:
        """Return all rows with one of these keys, given in columns. Nulls are equal."""
        probe = Probe.of(self.layout, keys)
        return together(self.layout, [probe.find(batch) for batch in self.batches])

    def sums(self, keys: Sequence[pl.Series]) -> list[Any]:
        """Return, for each sum of the layout, its totals for these keys."""
        return self.sums_of(self.probe(keys), len(keys[0]))

    def sums_of(self, found: FoundRows, count: int) -> list[Any]:
        """Return, for each sum of the layout, its totals over the rows found for each of `count` keys."""
        totals: list[Any] = []
        for name in self.layout.sums:
            total = np.zeros(count, np.int64)
            np.add.at(total, found.asked, found.rows[name].to_numpy())
            totals.append(total)
        return totals

    def snapshot(self) -> pl.DataFrame:
        """Return all rows, sorted by code, except those that cancel each other."""
        if not self.batches:
            return pl.DataFrame(schema=self.layout.types)
        return batch_of(self.layout, concat_frames([batch.frame for batch in self.batches])).frame


def together(layout: Layout, found: Sequence[FoundRows]) -> FoundRows:
    """Concatenate the rows found in several batches."""
    parts = [part for part in found if len(part.asked)]
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return FoundRows(np.empty(0, np.int64), pl.DataFrame(schema=layout.types))
    return FoundRows(np.concatenate([p.asked for p in parts]), concat_frames([p.rows for p in parts]))


@dataclass(frozen=True, slots=True)
class Probe:
    """Keys to look up in batches of a layout.

    codes: of the keys, ascending. order: the numbers of their keys; None if they are in order.
    most:  limit on the rows found in one batch; None for no limit.
    within: a column of integers that comes first in the layout's order, and for each code the value in it of
        the rows that are asked for, of those of the key.
    """

    layout: Layout
    keys: Sequence[pl.Series]
    codes: Codes
    order: Places | None
    most: int | None = None
    within: tuple[str, Codes] | None = None

    @classmethod
    def of(
        cls,
        layout: Layout,
        keys: Sequence[pl.Series],
        most: int | None = None,
        within: tuple[str, Codes] | None = None,
    ) -> Probe:
        order, codes = sorted_codes(layout.codes_of(keys))
        if within is not None and order is not None:
            within = within[0], within[1][order]
        return cls(layout, keys, codes, order, most, within)

    def find(self, batch: SortedBatch) -> FoundRows:
        """Return a batch's rows with the keys of the probe. Rows of one key keep their order.

        Raises `TooManyFound`.
        """
        asked, places = self._places(batch)
        if not len(asked):
            return FoundRows(asked, batch.take(places))
        rows = batch.take(places)
        if self.layout.exact or not len(asked):
            return FoundRows(asked, rows)
        named = [key.alias(name) for key, name in zip(self.keys, self.layout.keys, strict=True)]
        others = differing(take(pl.DataFrame(named), asked).get_columns(), self.layout.keys_of(rows))
        if not others.any():
            return FoundRows(asked, rows)
        if self.within is not None:
            # Of ranges that were looked at whole.
            name, values = self.within
            wanted = values
            if self.order is not None:
                wanted = np.empty_like(values)
                wanted[self.order] = values
            others |= rows[name].to_numpy() != wanted[asked]
        at = np.flatnonzero(~others)
        return FoundRows(asked[at], take(rows, at))

    def _places(self, batch: SortedBatch) -> tuple[Places, Places]:
        """Return, for each row with the code of a key, the key's number and the row's position."""
        low = np.searchsorted(batch.codes, self.codes, "left")
        within = np.flatnonzero(low < len(batch))
        hit = within[batch.codes[low[within]] == self.codes[within]]
        low, high = low[hit], np.searchsorted(batch.codes, self.codes[hit], "right")
        asked = hit if self.order is None else self.order[hit]
        if self.within is not None:
            low, high = self._narrowed(batch, asked, low, high, self.within[1][hit])
            there = np.flatnonzero(low < high)
            low, high, asked = low[there], high[there], asked[there]
        counts = high - low
        total = int(counts.sum())
        if self.most is not None and total > self.most:
            raise TooManyFound
        if total == len(counts):
            return asked, low
        skipped = np.cumsum(counts) - counts - low
        return np.repeat(asked, counts), np.arange(total) - np.repeat(skipped, counts)

    def _narrowed(
        self, batch: SortedBatch, asked: Places, low: Places, high: Places, values: Codes
    ) -> tuple[Places, Places]:
        """Narrow ranges of rows to the rows with the values asked for."""
        assert self.within is not None
        column = batch.numbers(self.within[0])
        begin = _first_place(column, low, high, values, after=False)
        end = _first_place(column, begin, high, values, after=True)
        if not self.layout.exact and len(asked):
            # A range of several keys is looked at whole.
            own = take(pl.DataFrame(list(self.keys)), asked).get_columns()
            others = np.zeros(len(asked), np.bool_)
            for at in (low, high - 1):
                others |= differing(own, self.layout.keys_of(batch.take(at)))
            begin, end = np.where(others, low, begin), np.where(others, high, end)
        return begin, end


def _first_place(column: pl.Series, low: Places, high: Places, values: Codes, *, after: bool) -> Places:
    """Return, per range of ascending numbers, the first position at or above the value, or only above it."""
    low, high = low.copy(), high.copy()
    while len(going := np.flatnonzero(low < high)):
        middle = (low[going] + high[going]) >> 1
        # A merged column lies in pieces: as a whole it would be copied.
        found = column.gather(pl.Series(middle.astype(np.uint32))).to_numpy()
        less = found <= values[going] if after else found < values[going]
        low[going[less]] = middle[less] + 1
        high[going[~less]] = middle[~less]
    return low
