from typing import NamedTuple

import headrace as hr
from headrace import Flow


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
hr.draw(orders)
