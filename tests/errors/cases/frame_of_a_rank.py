from typing import NamedTuple

import penstock as ps


class Sale(NamedTuple):
    shop: str
    day: int


flow = ps.Flow("sales")
sales = flow.table("sales", Sale)
sales.with_columns(n=ps.rank().over(order_by="day", rows=(-1, 0)))
