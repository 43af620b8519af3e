from typing import NamedTuple

import penstock as ps
from penstock import Flow


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
ps.draw(orders)
