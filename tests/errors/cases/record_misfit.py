from typing import NamedTuple

import penstock as ps


class Price(NamedTuple):
    item: str
    price: int
    version: int


flow = ps.Flow("prices")
prices = flow.source("prices", Price)
flow.sink("current", prices.upsert("item", sequence="version"))
engine = ps.Engine(flow)
engine.tick(prices=[Price("tea", 300, 1), Price("rum", 900, 1)])
engine.tick(prices=[Price("tea", 350, 1)])
