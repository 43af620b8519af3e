from typing import NamedTuple

import penstock as ps
from penstock import Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
orders.select(size=ps.when(col.price > 10).then("large").otherwise("small"))
