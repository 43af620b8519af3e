from typing import NamedTuple

import headrace as hr
from headrace import col


class Bid(NamedTuple):
    auction: int
    bidder: str
    price: float


flow = hr.Flow("auctions")
bids = flow.source("bids", Bid)
bids.group_by("auction").agg(answer=hr.hll_sketch_agg(col.auction, 3))
