"""Nexmark q4: an aggregate of an aggregate."""

from __future__ import annotations

from typing import NamedTuple

import headrace as hr
from headrace import col


class Auction(NamedTuple):
    id: int
    category: int
    expires: int


class Bid(NamedTuple):
    auction: int
    price: int
    at: int


flow = hr.Flow("average closing price per category")
auctions = flow.source("auctions", Auction)
bids = flow.source("bids", Bid)
final = (
    bids.join(auctions, on=col.auction == col.id)
    .filter(col.at <= col.expires)
    .group_by(col.id, col.category)
    .agg(final=hr.max(col.price))
)
flow.sink("averages", final.group_by(col.category).agg(average=hr.mean(col.final)))
