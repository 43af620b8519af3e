from typing import NamedTuple

from headrace import Engine, Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float
    note: str | None = None


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("large", orders.filter(col.price > 10))
answer = Engine(flow).tick(orders=[Order(1, "PE", 12.5)])
answer["larg"]
