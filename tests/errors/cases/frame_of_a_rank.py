from typing import NamedTuple

import headrace as hr


class Sale(NamedTuple):
    shop: str
    day: int


flow = hr.Flow("sales")
sales = flow.table("sales", Sale)
sales.with_columns(n=hr.rank().over(order_by="day", rows=(-1, 0)))
