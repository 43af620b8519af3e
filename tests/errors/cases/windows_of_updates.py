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
minutes = timed.group_by(window=ps.tumbling(col.at, "1 min"), emit="updates").agg(n=ps.count())
minutes.group_by(window=ps.tumbling(col.window_end, "1h")).agg(n=ps.sum(col.n))
