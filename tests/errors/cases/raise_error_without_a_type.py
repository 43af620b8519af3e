from typing import NamedTuple

import penstock as ps
from penstock import col
from penstock.functions import raise_error


class Bid(NamedTuple):
    auction: int
    price: int


flow = ps.Flow("bids")
bids = flow.source("bids", Bid)
bids.select(price=col.price, error=raise_error("no price"))
