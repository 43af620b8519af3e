from typing import NamedTuple

from headrace import Flow


class Order(NamedTuple):
    id: int
    country: str
    price: float


flow = Flow("shop")
orders = flow.source("orders", Order)
orders.group_by("country").sum()
