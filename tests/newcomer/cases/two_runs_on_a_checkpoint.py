from typing import NamedTuple

import penstock as ps
from penstock import Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float
    note: str | None = None


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("large", orders.filter(col.price > 10))


def rows():
    ps.run(flow, {"orders": []}, checkpoint="state")
    yield Order(1, "PE", 12.5)


ps.run(flow, {"orders": rows()}, checkpoint="state")
