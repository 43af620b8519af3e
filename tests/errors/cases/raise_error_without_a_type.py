from typing import NamedTuple

import headrace as hr
from headrace import col
from headrace.functions import raise_error


class Bid(NamedTuple):
    auction: int
    price: int


flow = hr.Flow("bids")
bids = flow.source("bids", Bid)
bids.select(price=col.price, error=raise_error("no price"))
