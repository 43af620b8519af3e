from datetime import datetime
from typing import NamedTuple

import headrace as hr
from headrace import col


class Bid(NamedTuple):
    who: str
    at: datetime
    ms: float


flow = hr.Flow("bids")
bids = flow.source("bids", Bid)
bids.watermark(col.ms, lateness=10**400)
