from typing import NamedTuple

import headrace as hr
from headrace import col


class Bid(NamedTuple):
    auction: int
    bidder: str
    price: float
    note: str | None


class Auction(NamedTuple):
    id: int
    bidder: str
    category: int


flow = hr.Flow("auctions")
bids = flow.source("bids", Bid)
auctions = flow.source("auctions", Auction)
bids.top_k("3", by=col.price)
