from typing import NamedTuple

import headrace as hr


class Basket(NamedTuple):
    owner: str
    items: list[str]


flow = hr.Flow("baskets")
baskets = flow.source("baskets", Basket)
baskets.explode("items", position="owner")
