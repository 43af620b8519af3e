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
bids.group_by("who", window=hr.tumbling(col.at, "1h")).agg(n=hr.count())
