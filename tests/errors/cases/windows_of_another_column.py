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
on_time.group_by("who", window=hr.tumbling(col.ms, 1000)).agg(n=hr.count())
