from typing import NamedTuple

import headrace as hr


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
other = hr.Flow("archive")
old_bids = other.source("bids", Bid)
bids.union(old_bids)
