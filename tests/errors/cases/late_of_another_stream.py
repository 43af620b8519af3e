from datetime import datetime
from typing import NamedTuple

import penstock as ps
from penstock import col


class Bid(NamedTuple):
    who: str
    at: datetime
    ms: int


flow = ps.Flow("bids")
bids = flow.source("bids", Bid)
on_time = bids.watermark(col.at, lateness="10s")
on_time.filter(col.who != "").late()
