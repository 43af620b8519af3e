from datetime import datetime
from typing import NamedTuple

import headrace as hr
from headrace import col


class Bid(NamedTuple):
    who: str
    at: datetime
    ms: int


flow = hr.Flow("bids")
bids = flow.source("bids", Bid)
more = flow.source("more", Bid)
both = bids.union(more)
flow.sink("on_time", both.watermark(col.at, lateness="10s"))
hr.explain(flow)
