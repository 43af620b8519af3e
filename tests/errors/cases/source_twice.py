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
flow.source("bids", Bid)
flow.source("bids", Auction)
