from typing import NamedTuple

import headrace as hr
from headrace import col


class Price(NamedTuple):
    item: str
    price: float
    version: int


flow = hr.Flow("prices")
prices = flow.table("prices", Price, key=col.item)  # type: ignore[arg-type]
