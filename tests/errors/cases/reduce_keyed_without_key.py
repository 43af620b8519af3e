import headrace as hr

flow = hr.Flow("orders")
amounts = flow.source("amounts", int)
flow.sink("greatest", amounts.reduce_keyed((), max))
