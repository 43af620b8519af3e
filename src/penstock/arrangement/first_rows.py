"""The first rows of keys, in the order that their layout has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from penstock.arrangement.batch import Batch, Layout, Order, differing, ordered, take, unlike
from penstock.arrangement.spine import Found, Probe, together

_MORE = 16
"""Rows per key and batch that are looked at beyond the wanted ones, for those that are taken back."""

_ASKED, _CUT = "#asked", "#cut"


def first_rows(layout: Layout, batches: Sequence[Batch], keys: Sequence[pl.Series], count: int) -> Found:
    """Return of each key the first rows that are there, until `count` copies are reached.

    layout: has an order, and one sum, the number of copies. Equal rows are one; the last of a key may have
        more copies than wanted. Rows of one key come in order.
    """
    asked = np.arange(len(keys[0]))
    if not batches or not len(asked):
        return together(layout, [])
    parts: list[Found] = []
    limit = count + _MORE
    while len(asked):
        at = pl.Series(asked.astype(np.uint32))
        probe = Probe.of(layout, [key[at] for key in keys])
        looked = pl.concat([_beginnings(layout, batch, probe, limit) for batch in batches])
        found, done = _trusted(layout, looked, len(asked), count)
        parts.append(Found(asked[found.asked], found.rows))
        asked = asked[~done]
        limit *= 8
    asking = np.concatenate([part.asked for part in parts])
    order = np.argsort(asking, kind="stable")
    return Found(asking[order], take(pl.concat([part.rows for part in parts]), order))


def _beginnings(layout: Layout, batch: Batch, probe: Probe, limit: int) -> pl.DataFrame:
    """Return the first rows of each key in a batch, with its number, and a mark where more follow."""
    low = np.searchsorted(batch.codes, probe.codes, "left")
    high = np.searchsorted(batch.codes, probe.codes, "right")
    hit = np.flatnonzero(high > low)
    low, high = low[hit], high[hit]
    asked = hit if probe.order is None else probe.order[hit]
    sizes = high - low
    if not layout.exact:
        # A range of several keys is looked at whole.
        own = take(pl.DataFrame(list(probe.keys)), asked).get_columns()
        others = np.zeros(len(hit), np.bool_)
        for end in (low, high - 1):
            others |= differing(own, layout.keys_of(take(batch.frame, end)))
        taken = np.where(others, sizes, np.minimum(sizes, limit))
    else:
        taken = np.minimum(sizes, limit)
    skipped = np.cumsum(taken) - taken - low
    places = np.arange(int(taken.sum())) - np.repeat(skipped, taken)
    cut = np.zeros(len(places), np.bool_)
    cut[(np.cumsum(taken) - 1)[taken < sizes]] = True
    numbers = np.repeat(asked, taken)
    rows = take(batch.frame, places)
    if not layout.exact and len(places):
        own = take(pl.DataFrame(list(probe.keys)), numbers).get_columns()
        mine = np.flatnonzero(~differing(own, layout.keys_of(rows)))
        rows, numbers, cut = take(rows, mine), numbers[mine], cut[mine]
    return rows.hstack([pl.Series(_ASKED, numbers.astype(np.int64)), pl.Series(_CUT, cut)])


def _trusted(layout: Layout, looked: pl.DataFrame, asked: int, count: int) -> tuple[Found, Any]:
    """Return the first rows as far as no batch may have earlier ones, and of which keys they are enough."""
    (weight,) = layout.sums
    places = ordered(looked, [Order(_ASKED, False), *layout.order])
    looked = take(looked, places)
    numbers = looked[_ASKED].to_numpy()
    done = np.ones(asked, np.bool_)
    if not looked.height:
        return Found(numbers, looked.select(*layout.types)), done
    starts = np.ones(looked.height, np.bool_)
    starts[1:] = unlike(
        looked.select(_ASKED, *(each.column for each in layout.order)), np.arange(looked.height - 1)
    )
    begins = np.flatnonzero(starts)
    copies = np.add.reduceat(looked[weight].to_numpy(), begins)
    # What equals the row at which a batch was cut, or comes after it, may have more to it.
    cuts = np.flatnonzero(np.logical_or.reduceat(looked[_CUT].to_numpy(), begins))
    of = numbers[begins]
    horizon = np.full(asked, len(begins))
    np.minimum.at(horizon, of[cuts], cuts)
    there = (copies > 0) & (np.arange(len(begins)) < horizon[of])
    at = np.flatnonzero(there)
    before = np.cumsum(copies[at]) - copies[at]
    own = of[at]
    firsts = np.ones(len(at), np.bool_)
    firsts[1:] = own[1:] != own[:-1]
    before -= np.repeat(before[firsts], np.diff(np.flatnonzero(firsts), append=len(at)))
    within = before < count
    at, own = at[within], own[within]
    reached = np.zeros(asked, np.int64)
    np.add.at(reached, own, copies[at])
    done = (reached >= count) | (horizon == len(begins))
    kept = done[own]
    rows = take(looked, begins[at[kept]]).select(*layout.types)
    rows = rows.with_columns(pl.Series(weight, copies[at[kept]]))
    return Found(own[kept], rows), done
