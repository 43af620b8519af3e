"""The first rows of keys, in the order that their layout has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from headrace.arrangement.batch import (
    Batch,
    Layout,
    Order,
    Places,
    differing,
    ordered,
    select,
    stacked,
    take,
    unlike,
)
from headrace.arrangement.spine import Found, Probe
from headrace.expr.deferred_imports import np, pl

_MORE = 16
"""Rows per key and batch that are looked at beyond the wanted ones, for those that are taken back."""

_ASKED, _CUT, _NEW = "#asked", "#cut", "#new"


class Change(NamedTuple):
    """First rows of keys before a batch, and after it: the same object if they are seen to be the same."""

    before: Found
    after: Found


def first_rows(
    layout: Layout,
    batches: Sequence[Batch],
    keys: Sequence[pl.Series],
    count: int,
    *,
    more: int | None = None,
) -> Found:
    """Return of each key the first rows that are there, until `count` copies are reached.

    layout: has an order; its first sum is the number of copies, and the only one that is looked at. Equal
        rows are one; the last of a key may have more copies than wanted. Rows of one key come in order.
    more: rows per key and batch that are looked at beyond `count` at first.
    """
    return change_of_first_rows(layout, batches, None, keys, count, more=more).after


def change_of_first_rows(
    layout: Layout,
    batches: Sequence[Batch],
    new: Batch | None,
    keys: Sequence[pl.Series],
    count: int,
    *,
    more: int | None = None,
) -> Change:
    """Return of each key the first rows in some batches, and those in them and a new one."""
    asked = np.arange(len(keys[0]))
    every = [batch for batch in (*batches, *([] if new is None else [new])) if len(batch)]
    parts: list[Change] = []
    limit = count + (_MORE if more is None else more)
    while len(asked) and every:
        left = keys if not parts else take(pl.DataFrame(list(keys)), asked).get_columns()
        probe = Probe.of(layout, left)
        looked = _beginnings(layout, every, new, probe, limit)
        found, done = _trusted(layout, looked, len(asked), count)
        before, after = (Found(asked[each.asked], each.rows) for each in found)
        parts.append(Change(before, before if found[0] is found[1] else after))
        asked = asked[~done]
        limit *= 8
    if len(parts) == 1:
        return parts[0]
    if not parts:
        nothing = Found(asked[:0], pl.DataFrame(schema=layout.types))
        return Change(nothing, nothing)
    return Change(_in_order([part.before for part in parts]), _in_order([part.after for part in parts]))


def _in_order(parts: Sequence[Found]) -> Found:
    asking = np.concatenate([part.asked for part in parts])
    order = np.argsort(asking, kind="stable")
    return Found(asking[order], take(stacked([part.rows for part in parts]), order))


def _beginnings(
    layout: Layout, batches: Sequence[Batch], new: Batch | None, probe: Probe, limit: int
) -> pl.DataFrame:
    """Return the first rows of each key in batches, with its number, and a mark where more follow."""
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
                ends.append(take(select(batch.frame, layout.keys), at))
                of_ends.append(asked[more])
        rows.append(take(batch.frame, places))
        numbers.append(np.repeat(asked, taken))
        cuts.append(cut)
        news.append(np.full(len(places), batch is new))
    asked, cut = np.concatenate(numbers), np.concatenate(cuts)
    looked = stacked(rows).hstack(
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
        if differing(own, stacked(ends).get_columns()).any():
            # A range of several keys is looked at whole.
            return _beginnings(layout, batches, new, probe, max(map(len, batches)))
    others = differing(take(keys, asked).get_columns(), layout.keys_of(looked))
    return take(looked, np.flatnonzero(~others)) if others.any() else looked


def _trusted(layout: Layout, looked: pl.DataFrame, asked: int, count: int) -> tuple[tuple[Found, Found], Any]:
    """Return the first rows as far as no batch may have earlier ones, and of which keys they are enough.

    The rows without the new batch, then with it.
    """
    looked = take(looked, ordered(looked, [Order(_ASKED, False), *layout.order]))
    numbers = looked[_ASKED].to_numpy()
    done = np.ones(asked, np.bool_)
    if not looked.height:
        nothing = Found(numbers, select(looked, layout.types))
        return (nothing, nothing), done
    starts = np.ones(looked.height, np.bool_)
    starts[1:] = unlike(
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
    found: list[Found] = []
    for at, copies in versions:
        if found and all(map(np.array_equal, versions[0], (at, copies))):
            return (found[0], found[0]), done
        kept = done[of[at]]
        rows = select(take(looked, begins[at[kept]]), layout.types)
        weight = layout.sums[0]
        rows.replace_column(rows.get_column_index(weight), pl.Series(weight, copies[kept]))
        found.append(Found(of[at[kept]], rows))
    return (found[0], found[1]), done
