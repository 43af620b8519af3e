from datetime import datetime
from typing import NamedTuple

import penstock as ps
from penstock import col


class Bid(NamedTuple):
    who: str
    at: datetime
    ms: int


flow = ps.Flow("bids")
bids = flow.table("bids", Bid)
recent = bids.filter(col.who != "")
flow.sink("on_time", recent.watermark(col.at, lateness="10s"))
ps.explain(flow)
