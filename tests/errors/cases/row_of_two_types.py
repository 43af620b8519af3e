from typing import NamedTuple

import headrace as hr


class Bid(NamedTuple):
    price: float | str


flow = hr.Flow("auctions")
flow.source("bids", Bid)
