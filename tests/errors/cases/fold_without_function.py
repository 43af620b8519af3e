import penstock as ps
from penstock import col

flow = ps.Flow("orders")
amounts = flow.source("amounts", int)
flow.sink("total", amounts.fold(0, ps.sum(col.value)))  # type: ignore
