from typing import NamedTuple

import headrace as hr


class Price(NamedTuple):
    item: str
    price: int
    version: int


flow = hr.Flow("prices")
prices = flow.source("prices", Price)
flow.sink("current", prices.upsert("item", sequence="version"))
engine = hr.Engine(flow)
engine.tick(prices=[Price("tea", 300, 1), Price("rum", 900, 1)])
engine.tick(prices=[Price("tea", 350, 1)])
