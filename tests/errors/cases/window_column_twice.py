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
timed = bids.watermark(col.at, lateness="10s")
timed.group_by(window_end=col.who, window=ps.tumbling(col.at, "1 min")).agg(n=ps.count())
