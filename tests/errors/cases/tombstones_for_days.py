from typing import NamedTuple

import penstock as ps


class Price(NamedTuple):
    item: str
    price: float
    version: int


flow = ps.Flow("prices")
prices = flow.table("prices", Price, key="item", sequence="version", tombstones="7 d")
