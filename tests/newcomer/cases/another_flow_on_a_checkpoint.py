from typing import NamedTuple

import headrace as hr
from headrace import Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float
    note: str | None = None


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("large", orders.filter(col.price > 10))
hr.run(flow, {"orders": [Order(1, "PE", 12.5)]}, checkpoint="state")

other = Flow("shop")
other_orders = other.source("orders", Order)
other.sink("large", other_orders.group_by("country").agg(total=hr.sum(col.price)))
hr.run(other, {"orders": []}, checkpoint="state")
