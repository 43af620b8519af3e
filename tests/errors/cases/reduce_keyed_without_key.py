import penstock as ps

flow = ps.Flow("orders")
amounts = flow.source("amounts", int)
flow.sink("greatest", amounts.reduce_keyed((), max))
