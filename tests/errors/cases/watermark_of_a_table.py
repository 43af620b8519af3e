from datetime import datetime
from typing import NamedTuple

import headrace as hr
from headrace import col


class Bid(NamedTuple):
    who: str
    at: datetime
    ms: int


flow = hr.Flow("bids")
bids = flow.table("bids", Bid)
recent = bids.filter(col.who != "")
flow.sink("on_time", recent.watermark(col.at, lateness="10s"))
hr.explain(flow)
