from typing import NamedTuple

import headrace as hr


class Sale(NamedTuple):
    shop: str
    day: int


flow = hr.Flow("sales")
sales = flow.table("sales", Sale)
sales.select(n=hr.count().over())
