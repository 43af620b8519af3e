from typing import NamedTuple

import penstock as ps


class Sale(NamedTuple):
    shop: str
    day: int


flow = ps.Flow("sales")
sales = flow.table("sales", Sale)
sales.with_columns(n=ps.count().over(order_by="shop", range=(-1, 0)))
