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
on_time = bids.watermark(col.at, lateness="10s")
same = on_time.map(lambda bid: bid, returns=Bid)
same.group_by(window=hr.tumbling(col.at, "1h")).agg(n=hr.count())
