from typing import NamedTuple

import headrace as hr
from headrace import Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("large", orders.filter(col.price > 10))
hr.run(flow, {"orders": []}, observer=print)
