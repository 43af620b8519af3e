"""Immutable batches: rows in columns, sorted by the codes of their keys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, cast

from headrace.arrangement.codes import Codes, codes_of, is_exact, numbers_of
from headrace.requirements import np, pl

Numbers: TypeAlias = "np.ndarray[tuple[int], np.dtype[np.int64]]"
Places: TypeAlias = Numbers
"""Numbers of rows."""


class Order(NamedTuple):
    """Sort column of rows with equal keys. Nulls are first if ascending, last if descending."""

    column: str
    descending: bool


WIDE_BITS = 32
"""Bits of the lower parts of a wide sum."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Columns of an arrangement.

    types: of all columns, by name. keys: columns that rows are found by.
    sums: columns of 64-bit integers that are added when rows are equal in all others. A row whose sums are
        all zero is not there.
    nullable: whether a key may be null.
    wide: sums that stand for one of more than 64 bits: of 32 bits each, never negative, from the lowest on;
        the last has the rest.
    order: what rows of one key are sorted by: nothing, or all columns that are neither keys nor sums. Equal
        rows are always one then.
    latest: only the newest row of a key counts; one with a null value marks a removed key. It has no sums.

    A collection of rows has its weights as the only sums. An aggregate of groups has keys and sums alone.
    """

    types: dict[str, pl.DataType]
    keys: tuple[str, ...]
    sums: tuple[str, ...]
    nullable: bool
    order: tuple[Order, ...] = ()
    wide: tuple[tuple[str, ...], ...] = ()
    latest: bool = False

    @property
    def exact(self) -> bool:
        """Return whether equal codes imply equal keys."""
        return is_exact([self.types[key] for key in self.keys], self.nullable)

    @property
    def values(self) -> tuple[str, ...]:
        """Return the columns that are neither keys nor sums."""
        return tuple(name for name in self.types if name not in self.keys and name not in self.sums)

    def keys_of(self, frame: pl.DataFrame) -> list[pl.Series]:
        """Return the key columns of a frame."""
        return [frame[key] for key in self.keys]

    def codes_of(self, keys: Sequence[pl.Series]) -> Codes:
        """Return the codes of keys."""
        return codes_of(keys, exact=self.exact)


@dataclass(frozen=True, slots=True, eq=False)
class SortedBatch:
    """Rows sorted by `codes`. Rows with equal keys are adjacent, unless several keys share a code.

    A key is there once if there are no columns but keys and sums.

    bounds: for each sum of the layout, the approximate total of the absolute values of all rows.
    """

    codes: Codes
    frame: pl.DataFrame
    bounds: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.codes)

    def slice(self, start: int, stop: int) -> SortedBatch:
        """Return the rows at positions [`start`, `stop`)."""
        return SortedBatch(self.codes[start:stop], self.frame.slice(start, stop - start), self.bounds)

    def take(self, places: Places) -> pl.DataFrame:
        """Return the rows at these positions."""
        return take(self.frame, places)

    def numbers(self, column: str) -> pl.Series:
        """Return a column of integers, perhaps of a narrower type."""
        return self.frame[column]

    def single_rows(self, columns: Sequence[str]) -> SingleRows:
        """Return access to single rows of some columns."""
        return select(self.frame, columns)

    @property
    def estimated_bytes(self) -> int:
        """Bytes of the rows in memory."""
        return int(self.frame.estimated_size())


class SingleRows(Protocol):
    """Rows that are read one by one, or a few side by side, as a frame has them."""

    def row(self, index: int, /) -> tuple[Any, ...]: ...

    def slice(self, offset: int, length: int, /) -> pl.DataFrame: ...


def bounded(layout: Layout, codes: Codes, frame: pl.DataFrame) -> SortedBatch:
    """Make a batch of sorted rows, computing its bounds."""
    return SortedBatch(codes, frame, _bounds([frame[name].to_numpy() for name in layout.sums]))


def _bounds(sums: Iterable[Numbers]) -> tuple[float, ...]:
    return tuple(float(np.abs(column.astype(np.float64)).sum()) for column in sums)


def batch_of(
    layout: Layout, frame: pl.DataFrame, *, net: bool = True, codes: Codes | None = None
) -> SortedBatch:
    """Sort rows into a batch, adding up equal ones: all, or only those of keys with rows of both signs.

    net: whether to look for rows that are taken back where equal ones do not lie side by side, which costs
        as much as all else.
    codes: of the rows, where they are not those of the layout.
    """
    rows = select(frame, layout.types)
    if not rows.height:
        return SortedBatch(np.empty(0, np.int64), rows, (0.0,) * len(layout.sums))
    codes = layout.codes_of(layout.keys_of(rows)) if codes is None else codes
    return _settled(layout, codes, rows, None, net=net)


def merged(
    layout: Layout, batches: Sequence[SortedBatch], *, net: bool = True, whole: bool = False
) -> SortedBatch:
    """Merge batches. Among rows with equal keys, those of earlier batches are first.

    net: see `batch_of`. whole: whether there are no earlier batches.
    """
    codes = np.concatenate([batch.codes for batch in batches])
    ends = np.cumsum([len(batch) for batch in batches])
    found = _settled(layout, codes, concat_frames([batch.frame for batch in batches]), ends, net=net)
    if whole and layout.latest and any(found.frame[name].null_count() for name in layout.values):
        there = np.all([found.frame[name].is_not_null().to_numpy() for name in layout.values], axis=0)
        return SortedBatch(found.codes[there], take(found.frame, np.flatnonzero(there)), ())
    return found


def _settled(
    layout: Layout, codes: Codes, frame: pl.DataFrame, ends: Places | None, *, net: bool
) -> SortedBatch:
    """Sort rows and add up equal ones: all, or only those of keys with rows of both signs.

    ends: ends of the runs that are already sorted; None to sort all rows. net: see `batch_of`.
    """
    order, codes = _order(layout, codes, frame, ends)
    if order is not None:
        frame = take(frame, order)
    elif ends is None:
        # What comes in order may lie in memory that is the user's, and so may codes that are keys.
        codes, frame = codes.copy(), own_copy(frame)
    if layout.latest:
        kept = _last_of_each(layout, codes, frame)
        return (
            SortedBatch(codes, frame, ()) if kept is None else SortedBatch(codes[kept], take(frame, kept), ())
        )
    sums = [frame[name].to_numpy() for name in layout.sums]
    if layout.order or not layout.values:
        kept, added = _summed_neighbours(layout, codes, sums, frame)
    else:
        kept, added = _summed_rows(layout, codes, sums, frame) if net else (np.arange(len(codes)), sums)
    present = np.zeros(len(kept), np.bool_)
    for column in added:
        present |= column != 0
    if not present.all():
        kept, added = kept[present], [column[present] for column in added]
    if len(kept) != len(codes):
        codes, frame = codes[kept], take(frame, kept)
    elif order is None:
        frame = frame.clone()
    for name, column, before in zip(layout.sums, added, sums, strict=True):
        if column is not before:
            frame.replace_column(frame.get_column_index(name), pl.Series(name, column))
    return SortedBatch(codes, frame, _bounds(added))


def _order(
    layout: Layout, codes: Codes, frame: pl.DataFrame, ends: Places | None
) -> tuple[Places | None, Codes]:
    """Return the sort order of rows (None if already sorted) and the sorted codes. ends: see `_settled`."""
    order, codes = sorted_codes(codes)
    if not layout.order and (layout.exact or layout.values):
        return order, codes
    repeated = codes[1:] == codes[:-1]
    if layout.order:
        at = _repeated(repeated) if ends is None else _mixed_runs(codes, repeated, order, ends)
        if len(at):
            order = np.arange(len(codes)) if order is None else order
            order[at] = order[at][_in_order(layout, codes[at], take(frame, order[at]))]
        return order, codes
    keys = select(frame, layout.keys)
    if _unlike(keys, order, np.flatnonzero(repeated)).any():
        # Several keys have one code: rows of each are brought side by side.
        coded = keys if order is None else take(keys, order)
        again = row_order(
            coded.hstack([pl.Series("#", codes)]), [Order(n, False) for n in ("#", *layout.keys)]
        )
        return again if order is None else order[again], codes
    return order, codes


_RUNS = 4_096
"""Sorted runs up to which a sort that merges runs is the faster one."""


def sorted_codes(codes: Codes) -> tuple[Places | None, Codes]:
    """Return the stable sort order of codes (None if already sorted), and the sorted codes."""
    falls = int(np.count_nonzero(codes[1:] < codes[:-1]))
    if not falls:
        return None, codes
    if falls <= _RUNS:
        order = np.argsort(codes, kind="stable")
        return order, codes[order]
    # Numbers with their places in the lower bits are sorted three times as fast as places by numbers.
    bits = len(codes).bit_length()
    places = (1 << bits) - 1
    least = int(codes.min())
    if int(codes.max()) - least < 1 << (63 - bits):
        packed = _sorted(((codes - least) << bits) | np.arange(len(codes)))
        return packed & places, (packed >> bits) + least
    packed = _sorted((codes & ~places) | np.arange(len(codes)))
    order = packed & places
    row_order = codes[order]
    falling = np.flatnonzero(row_order[1:] < row_order[:-1])
    if len(falling):
        # Few codes differ in the bits alone that gave way to the places.
        upper = packed >> bits
        at = np.flatnonzero(np.isin(upper, upper[falling]))
        own = order[at]
        order[at] = own[np.lexsort((own, codes[own]))]
        row_order = codes[order]
    return order, row_order


def _sorted(numbers: Numbers) -> Numbers:
    # NumPy takes longer.
    return pl.Series(numbers).sort().to_numpy()


def _repeated(repeated: Any) -> Places:
    """Return the positions of codes that equal a neighbour. repeated: whether each code equals the next."""
    if not len(repeated):
        return np.empty(0, np.int64)
    return np.flatnonzero(np.concatenate((repeated, [False])) | np.concatenate(([False], repeated)))


def _mixed_runs(codes: Codes, repeated: Any, order: Places | None, ends: Places) -> Places:
    """Return the sorted positions of codes with rows from more than one of the runs that end at `ends`."""
    if not len(codes):
        return np.empty(0, np.int64)
    run = np.searchsorted(ends, np.arange(len(codes)) if order is None else order, "right")
    starts = np.flatnonzero(np.concatenate(([True], ~repeated)))
    several = np.minimum.reduceat(run, starts) != np.maximum.reduceat(run, starts)
    return np.flatnonzero(np.repeat(several, np.diff(starts, append=len(codes))))


def _in_order(layout: Layout, codes: Codes, rows: pl.DataFrame) -> Places:
    """Return the positions of rows in the layout's order. codes: codes of the rows, ascending."""
    coded = rows.hstack([pl.Series("#", codes)])
    order = row_order(coded, [Order("#", False), *layout.order])
    if (
        layout.exact
        or not _unlike(select(rows, layout.keys), order, np.flatnonzero(np.diff(codes) == 0)).any()
    ):
        return order
    # Several keys have one code: rows of each are brought side by side.
    return row_order(coded, [Order("#", False), *(Order(key, False) for key in layout.keys), *layout.order])


def row_order(frame: pl.DataFrame, by: Sequence[Order]) -> Places:
    """Return the positions of the rows in sorted order."""
    if frame.height < _FEW:
        numbers = [numbers_of(frame[each.column]) for each in by]
        if not any(each is None for each in numbers):
            ascending = [~n if o.descending else n for n, o in zip(cast("Any", numbers), by, strict=True)]
            return np.lexsort(ascending[::-1])
    descending = [each.descending for each in by]
    columns = [pl.col(each.column) for each in by]
    places = pl.arg_sort_by(columns, descending=descending, nulls_last=descending, maintain_order=True)
    return frame.select(places).to_series().to_numpy().astype(np.int64)


_FEW = 10_000
"""Rows below which plans and threads of Polars cost more than they save."""


def _last_of_each(layout: Layout, codes: Codes, frame: pl.DataFrame) -> Places | None:
    """Return the position of the last row of each key; None if no code repeats."""
    same = np.flatnonzero(codes[1:] == codes[:-1])
    if not len(same):
        return None
    keys = select(frame, layout.keys)
    kept = np.ones(len(codes), np.bool_)
    if len(same) > _FEW_ALIKE and not differs_from_next(keys, same).any():
        kept[same] = False
    else:
        # Few, or several keys have one code.
        at = np.union1d(same, same + 1)
        kept[at] = False
        kept[list({keys.row(place): place for place in at.tolist()}.values())] = True
    return np.flatnonzero(kept)


_FEW_ALIKE = 100
"""Keys up to which they are compared faster in Python."""


def _summed_neighbours(
    layout: Layout, codes: Codes, sums: list[Numbers], frame: pl.DataFrame
) -> tuple[Places, list[Numbers]]:
    """Add up equal rows, which are adjacent. Return the positions of the first ones, and the sums."""
    starts = np.ones(len(codes), np.bool_)
    starts[1:] = codes[1:] != codes[:-1]
    if layout.values:
        rows = select(frame, (*layout.keys, *layout.values))
        last = max(0, len(codes) - 1)
        starts[1:] |= differing(rows.slice(0, last).get_columns(), rows.slice(1, last).get_columns())
    elif not layout.exact:
        same = np.flatnonzero(~starts) - 1
        starts[same + 1] = differs_from_next(select(frame, layout.keys), same)
    begins = np.flatnonzero(starts)
    if len(begins) == len(codes):
        return begins, sums
    return begins, _carried(layout, [np.add.reduceat(column, begins) for column in sums])


def _summed_rows(
    layout: Layout, codes: Codes, sums: list[Numbers], frame: pl.DataFrame
) -> tuple[Places, list[Numbers]]:
    """Add up equal rows for codes with rows of both signs. Return the remaining positions, and the sums.

    The first of equal rows stays in its place. Only these rows are hashed: in a merge they are few.
    """
    at = _mixed(codes, sums)
    kept = np.arange(len(codes))
    if not len(at):
        return kept, sums
    names = (*layout.keys, *layout.values)
    own = take(select(frame, names), at)
    hashes = codes_of(own.get_columns(), exact=False)
    alike = np.lexsort((hashes, codes[at]))
    places = at[alike]
    starts = np.ones(len(at), np.bool_)
    starts[1:] = (hashes[alike][1:] != hashes[alike][:-1]) | (codes[places][1:] != codes[places][:-1])
    if _unlike(own, alike, np.flatnonzero(~starts) - 1).any():
        # Several rows have one hash: the first that is equal tells which belong together.
        numbered = own.with_columns(pl.Series("#", np.arange(len(at))))
        first = numbered.select(pl.first("#").over(own.columns)).to_series().to_numpy()
        again = np.lexsort((at, first))
        places, first = at[again], first[again]
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
    """Return the positions of all rows with a code that has rows of both signs."""
    if not any(len(column) and column.min() < 0 < column.max() for column in sums):
        return np.empty(0, np.int64)
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1])))
    mixed = np.zeros(len(starts), np.bool_)
    for column in sums:
        mixed |= (np.minimum.reduceat(column, starts) < 0) & (np.maximum.reduceat(column, starts) > 0)
    return np.flatnonzero(np.repeat(mixed, np.diff(starts, append=len(codes))))


def _carried(layout: Layout, sums: list[Any]) -> list[Any]:
    at = {name: number for number, name in enumerate(layout.sums)}
    for names in layout.wide:
        for name, part in zip(names, propagate_carries([sums[at[name]] for name in names]), strict=True):
            sums[at[name]] = part
    return sums


def propagate_carries(parts: Sequence[Numbers]) -> list[Numbers]:
    """Propagate carries between the parts of wide sums, so that equal sums have equal parts."""
    made, beyond = list[Numbers](), np.zeros_like(parts[0])
    for part in parts[:-1]:
        whole = part + beyond
        made.append(whole & ((1 << WIDE_BITS) - 1))
        beyond = whole >> WIDE_BITS
    return [*made, parts[-1] + beyond]


def _unlike(frame: pl.DataFrame, order: Places | None, places: Places) -> Any:
    """Return, for each of these positions in `order`, whether its row differs from the next one."""
    if order is None:
        return differs_from_next(frame, places)
    if not len(places):
        return np.zeros(0, np.bool_)
    return differing(take(frame, order[places]).get_columns(), take(frame, order[places + 1]).get_columns())


def differs_from_next(frame: pl.DataFrame, places: Places) -> Any:
    """Return for each of these positions whether its row differs from the next one."""
    if not len(places):
        return np.zeros(0, np.bool_)
    return differing(take(frame, places).get_columns(), take(frame, places + 1).get_columns())


def differing(ones: Sequence[pl.Series], others: Sequence[pl.Series]) -> Any:
    """Return, for each pair of rows, whether any column differs. Nulls are equal, and so are NaNs."""
    found = np.zeros(len(ones[0]), np.bool_)
    for one, other in zip(ones, others, strict=True):
        nullable = one.null_count() or other.null_count()
        found |= (one.ne_missing(other) if nullable else one != other).to_numpy()
    return found


def joined(
    rows: pl.DataFrame, others: pl.DataFrame, keys: Sequence[str], how: Literal["inner", "left"]
) -> pl.DataFrame:
    """Join rows with others on `keys`, in the order of the rows. Nulls are equal, and so are NaNs."""
    if rows.height != 1 or others.height != 1:
        return rows.join(others, on=keys, how=how, nulls_equal=True, maintain_order="left")
    # Of one row each, Polars finds no NaN by one column alone.
    alike = [pl.Series("=", [0])]
    rows, others = rows.hstack(alike), others.hstack(alike)
    return rows.join(others, on=[*keys, "="], how=how, nulls_equal=True).drop("=")


def distinct_keys(layout: Layout, frame: pl.DataFrame) -> list[pl.Series]:
    """Return the distinct keys of rows, in order of first occurrence."""
    keys = select(frame, layout.keys)
    made = group_sums(keys.get_columns(), (), exact=layout.exact)
    found = keys.unique(maintain_order=True) if made is None else take(keys, made[0])
    return found.get_columns()


def group_sums(
    keys: Sequence[pl.Series], sums: Sequence[Numbers], *, exact: bool
) -> tuple[Places, list[Numbers]] | None:
    """Return the position of each key's first row, ascending, and the sums of its rows.

    None if several keys share a code. exact: see `codes_of`.
    """
    order, codes = sorted_codes(codes_of(keys, exact=exact))
    starts = np.ones(len(codes), np.bool_)
    starts[1:] = codes[1:] != codes[:-1]
    if not exact and _unlike(pl.DataFrame(list(keys)), order, np.flatnonzero(~starts) - 1).any():
        return None
    begins = np.flatnonzero(starts)
    firsts = begins if order is None else order[begins]
    rank = np.argsort(firsts)
    added = [np.add.reduceat(each if order is None else each[order], begins)[rank] for each in sums]
    return firsts[rank], added


def concat_frames(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate frames with the same columns."""
    # `pl.concat` plans a query.
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.vstack(frame)
    return whole


def select(frame: pl.DataFrame, names: Iterable[str]) -> pl.DataFrame:
    """Return columns in this order, without planning a query."""
    return pl.DataFrame([frame.get_column(name) for name in names])


def negated(layout: Layout, frame: pl.DataFrame) -> pl.DataFrame:
    """Return the retractions of a frame's rows: the same rows with negated sums."""
    # A series is negated by a plan.
    sums = {name: pl.Series(name, -frame[name].to_numpy()) for name in layout.sums}
    return pl.DataFrame([sums.get(name, frame[name]) for name in layout.types])


def values_at(values: pl.Series, places: Places, within: Any) -> pl.Series:
    """Return the values at these positions; null for each position with `within` false."""
    if not len(places):
        return values.clear()
    wanted = pl.Series(np.where(within, places, 0).astype(np.uint32))
    outside = np.flatnonzero(~within)
    return values.gather(wanted.scatter(outside, None) if len(outside) else wanted)


def masked(column: pl.Series, there: Any) -> pl.Series:
    """Return a column with nulls where `there` is false, its buffers free of the replaced values."""
    return values_at(column, np.arange(len(column)), there)


def own_copy(frame: pl.DataFrame) -> pl.DataFrame:
    """Copy the rows to memory of their own: Polars may share the buffers of NumPy or Arrow."""
    return take(frame, np.arange(frame.height))


def take(frame: pl.DataFrame, places: Places) -> pl.DataFrame:
    """Return the rows at these positions."""
    at = pl.Series(places.astype(np.uint32))
    if len(at) < _FEW:
        # For few rows this is cheaper than starting Polars' threads.
        return pl.DataFrame([column[at] for column in frame])
    if len(at) > frame.height // 4 and frame.n_chunks() > 1:
        # Of columns in pieces, single values are found three times as slowly.
        frame = frame.rechunk()
    return frame[at]
