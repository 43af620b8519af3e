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
ps.run(flow, {"orders": [Order(1, "PE", 12.5)]}, checkpoint="state")

other = Flow("shop")
other_orders = other.source("orders", Order)
other.sink("large", other_orders.group_by("country").agg(total=ps.sum(col.price)))
ps.run(other, {"orders": []}, checkpoint="state")
