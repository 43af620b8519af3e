from typing import NamedTuple

import penstock as ps
from penstock import Engine, Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("large", orders.filter(col.price > 10))
order = Order(1, "PE", 12.5)
Engine(flow).tick(orders=[ps.update(order, order)])
