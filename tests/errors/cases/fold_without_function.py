import headrace as hr
from headrace import col

flow = hr.Flow("orders")
amounts = flow.source("amounts", int)
flow.sink("total", amounts.fold(0, hr.sum(col.value)))  # type: ignore
