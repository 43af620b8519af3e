from typing import NamedTuple

from headrace import Engine, Flow


class Order(NamedTuple):
    id: int
    country: str
    price: float
    note: str | None = None


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("labels", orders.map(lambda order: order.price, returns=str))
Engine(flow).tick(orders=[Order(1, "PE", 12.5)])
