from typing import NamedTuple

from headrace import Flow


class Order(NamedTuple):
    id: int
    country: str
    price: float
    note: str | None = None


flow = Flow("shop")
orders = flow.source("orders", Order)


async def cleaned(order: Order) -> Order:
    return order


orders.map(cleaned)
