from typing import NamedTuple

import headrace as hr
from headrace import col


class Price(NamedTuple):
    item: str
    price: float
    version: int


flow = hr.Flow("prices")
prices = flow.source("prices", Price).upsert(["item", col.item], sequence="version")
