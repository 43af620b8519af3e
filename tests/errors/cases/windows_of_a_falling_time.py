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
left = on_time.with_columns(left=-col.at.micros_since(ps.timestamp("2030-01-01T00:00:00Z"))).select("left")
left.group_by(window=ps.tumbling(col.left, 1000)).agg(n=ps.count())
