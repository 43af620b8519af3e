from typing import NamedTuple

import headrace as hr
from headrace.lattice import Max


class Bid(NamedTuple):
    bidder: str
    price: int


flow = hr.Flow("auction")
bids = flow.source("bids", Bid)
flow.sink("best", bids.lattice_fold(Max()))
