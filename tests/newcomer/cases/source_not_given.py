from typing import NamedTuple

import penstock as ps


class Order(NamedTuple):
    id: int
    price: float


flow = ps.Flow("orders")
orders = flow.source("orders", Order)
flow.sink("out", orders)
ps.run(flow, {}, {"out": []})
