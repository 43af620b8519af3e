from typing import NamedTuple

import headrace as hr
from headrace import Engine, Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("large", orders.filter(col.price > 10))
order = Order(1, "PE", 12.5)
Engine(flow).tick(orders=[hr.update(order, order)])
