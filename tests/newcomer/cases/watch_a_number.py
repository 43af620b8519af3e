from typing import NamedTuple

from headrace import Engine, Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("large", orders.filter(col.price > 10))
Engine(flow).watch(3)
