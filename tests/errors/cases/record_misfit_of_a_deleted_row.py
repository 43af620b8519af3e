from typing import NamedTuple

import penstock as ps
from penstock import col


class Price(NamedTuple):
    item: str
    price: int
    version: int
    op: str


flow = ps.Flow("prices")
row = ps.struct(item=col.item, price=col.price)
prices = flow.source("prices", Price)
flow.sink("versions", prices.history("item", sequence="version", row=row, deleted=col.op == "D"))
engine = ps.Engine(flow)
engine.tick(prices=[Price("tea", 300, 5, "I"), Price("tea", 300, 5, "D")])
engine.tick(prices=[Price("tea", 350, 5, "I")])
