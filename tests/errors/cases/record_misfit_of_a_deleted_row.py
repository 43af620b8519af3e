from typing import NamedTuple

import headrace as hr
from headrace import col


class Price(NamedTuple):
    item: str
    price: int
    version: int
    op: str


flow = hr.Flow("prices")
row = hr.struct(item=col.item, price=col.price)
prices = flow.source("prices", Price)
flow.sink("versions", prices.history("item", sequence="version", row=row, deleted=col.op == "D"))
engine = hr.Engine(flow)
engine.tick(prices=[Price("tea", 300, 5, "I"), Price("tea", 300, 5, "D")])
engine.tick(prices=[Price("tea", 350, 5, "I")])
