from typing import NamedTuple

import numpy as np

from headrace import Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
orders.select(log=np.log(col.price))
