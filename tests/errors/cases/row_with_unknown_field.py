from typing import NamedTuple

import penstock as ps


class Bid(NamedTuple):
    price: float
    tags: dict[str, str]


flow = ps.Flow("auctions")
flow.source("bids", Bid)
