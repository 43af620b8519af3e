import headrace as hr

flow = hr.Flow("orders")
amounts = flow.source("amounts", int)
flow.sink("all", amounts.fold([], lambda all, amount: [*all, amount]))
