from typing import NamedTuple

import penstock as ps
from penstock import col


class Price(NamedTuple):
    item: str
    price: float
    version: int


flow = ps.Flow("prices")
prices = flow.table("prices", Price, key=col.item)  # type: ignore[arg-type]
