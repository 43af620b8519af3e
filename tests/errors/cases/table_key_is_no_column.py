from typing import NamedTuple

import headrace as hr


class Price(NamedTuple):
    item: str
    price: float
    version: int


flow = hr.Flow("prices")
prices = flow.table("prices", Price, key=5)  # type: ignore[arg-type]
