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
timed = bids.watermark(col.at, lateness="10s")
minutes = timed.group_by(window=hr.tumbling(col.at, "1 min"), emit="updates").agg(n=hr.count())
minutes.group_by(window=hr.tumbling(col.window_end, "1h")).agg(n=hr.sum(col.n))
