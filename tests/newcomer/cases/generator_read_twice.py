from typing import NamedTuple

from headrace import Engine, Flow, col


class Order(NamedTuple):
    id: int
    country: str
    price: float
    note: str | None = None


flow = Flow("shop")
orders = flow.source("orders", Order)
flow.sink("large", orders.filter(col.price > 10))
rows = (Order(number, "PE", 12.5) for number in range(2))
engine = Engine(flow)
print(len(engine.tick(orders=rows)["large"]))
print(len(engine.tick(orders=rows)["large"]))
