from typing import NamedTuple

import penstock as ps


class Sale(NamedTuple):
    shop: str
    day: int


flow = ps.Flow("sales")
sales = flow.table("sales", Sale)
sales.select(n=ps.count().over())
