from typing import NamedTuple

import penstock as ps
from penstock import col


class Bid(NamedTuple):
    auction: int
    bidder: str
    price: float


flow = ps.Flow("auctions")
bids = flow.source("bids", Bid)
bids.group_by("auction").agg(answer=ps.histogram_numeric(col.price, 1))
