from typing import NamedTuple

import polars as pl

from headrace import Engine, Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("large", orders.filter(col.price > 10))
Engine(flow).tick(orders=pl.LazyFrame({"id": [1]}))
