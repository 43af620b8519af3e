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
names = flow.source("names", Bid)
on_time = bids.watermark(col.at, lateness="10s")
named = on_time.filter(col.ms > 0).join(names, on="who", how="semi")
named.with_columns(hour=col.at.truncate("hour")).group_by(window=hr.tumbling(col.hour, "1d"))
