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
timed = bids.watermark(col.ms, lateness=0)
timed.group_by(window=hr.tumbling(col.ms, 10)).agg(emit="updates", n=hr.count())
