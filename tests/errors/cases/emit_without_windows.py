from typing import NamedTuple

import penstock as ps


class Bid(NamedTuple):
    auction: int
    bidder: str
    price: float
    note: str | None


class Auction(NamedTuple):
    id: int
    bidder: str
    category: int


flow = ps.Flow("auctions")
bids = flow.source("bids", Bid)
auctions = flow.source("auctions", Auction)
bids.group_by("auction", emit="updates").agg(n=ps.count())
