from typing import NamedTuple

from headrace import Engine, Flow


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("all", orders)
Engine(flow).feed([Order(1, "PE", 2.5)])
