from typing import NamedTuple

import headrace as hr


class Order(NamedTuple):
    id: int
    price: float


flow = hr.Flow("orders")
orders = flow.source("orders", Order)
flow.sink("out", orders)
hr.run(flow, {}, {"out": []})
