from typing import NamedTuple

from headrace import Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float
    note: str | None = None


flow = Flow("shop")
orders = flow.source("orders", Order)
orders.select(length=len(col.country))
