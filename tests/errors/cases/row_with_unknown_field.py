from typing import NamedTuple

import headrace as hr


class Bid(NamedTuple):
    price: float
    tags: set[str]


flow = hr.Flow("auctions")
flow.source("bids", Bid)
