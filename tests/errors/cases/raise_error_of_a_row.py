from typing import NamedTuple

import penstock as ps
from penstock import col
from penstock.functions import raise_error


class Bid(NamedTuple):
    auction: int
    price: int


flow = ps.Flow("bids")
bids = flow.source("bids", Bid)
negative = raise_error(ps.concat("negative: ", col.price.cast(str)))
checked = ps.when(col.price < 0, negative).otherwise(col.price)
flow.sink("prices", bids.select(price=checked))
ps.Engine(flow).tick(bids=[Bid(1, 5), Bid(2, -7)])
