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
same = on_time.map(lambda bid: bid, returns=Bid)
same.group_by(window=ps.tumbling(col.at, "1h")).agg(n=ps.count())
