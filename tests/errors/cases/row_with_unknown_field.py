from typing import NamedTuple

import penstock as ps


class Bid(NamedTuple):
    price: float
    tags: set[str]


flow = ps.Flow("auctions")
flow.source("bids", Bid)
