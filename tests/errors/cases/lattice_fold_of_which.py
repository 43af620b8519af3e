from typing import NamedTuple

import penstock as ps
from penstock.lattice import Max


class Bid(NamedTuple):
    bidder: str
    price: int


flow = ps.Flow("auction")
bids = flow.source("bids", Bid)
flow.sink("best", bids.lattice_fold(Max()))
