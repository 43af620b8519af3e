from typing import NamedTuple

import headrace as hr
from headrace import col
from headrace.functions import raise_error


class Bid(NamedTuple):
    auction: int
    price: int


flow = hr.Flow("bids")
bids = flow.source("bids", Bid)
negative = raise_error(hr.concat("negative: ", col.price.cast(str)))
checked = hr.when(col.price < 0, negative).otherwise(col.price)
flow.sink("prices", bids.select(price=checked))
hr.Engine(flow).tick(bids=[Bid(1, 5), Bid(2, -7)])
