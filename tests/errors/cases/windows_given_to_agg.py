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
timed = bids.watermark(col.ms, lateness=0)
timed.group_by("who").agg(window=ps.tumbling(col.ms, 10), n=ps.count())
