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
timed.group_by(window_end=col.who, window=hr.tumbling(col.at, "1 min")).agg(n=hr.count())
