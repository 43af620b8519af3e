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
left = on_time.with_columns(left=-col.at.micros_since(hr.timestamp("2030-01-01T00:00:00Z"))).select("left")
left.group_by(window=hr.tumbling(col.left, 1000)).agg(n=hr.count())
