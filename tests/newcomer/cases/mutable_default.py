from typing import NamedTuple

from headrace import Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float
    tags: list = []


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("large", orders.filter(col.price > 10))
