from pathlib import Path
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
Path("orders.csv").write_text("id\n1\n")
hr.run(flow, {"orders": []}, checkpoint="orders.csv")
