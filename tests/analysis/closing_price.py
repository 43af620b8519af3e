"""Nexmark q4: an aggregate of an aggregate."""

from __future__ import annotations

from typing import NamedTuple

import penstock as ps
from penstock import col


class Auction(NamedTuple):
    id: int
    category: int
    expires: int


class Bid(NamedTuple):
    auction: int
    price: int
    at: int


flow = ps.Flow("average closing price per category")
auctions = flow.source("auctions", Auction)
bids = flow.source("bids", Bid)
final = (
    bids.join(auctions, on=col.auction == col.id)
    .filter(col.at <= col.expires)
    .group_by(col.id, col.category)
    .agg(final=ps.max(col.price))
)
flow.sink("averages", final.group_by(col.category).agg(average=ps.mean(col.final)))
