from typing import NamedTuple

import penstock as ps


class Basket(NamedTuple):
    owner: str
    items: list[str]


flow = ps.Flow("baskets")
baskets = flow.source("baskets", Basket)
baskets.explode("items", position="owner")
