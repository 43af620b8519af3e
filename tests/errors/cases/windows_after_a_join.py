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
names = flow.source("names", Bid)
on_time = bids.watermark(col.at, lateness="10s")
named = on_time.filter(col.ms > 0).join(names, on="who", how="semi")
named.with_columns(hour=col.at.truncate("hour")).group_by(window=ps.tumbling(col.hour, "1d"))
