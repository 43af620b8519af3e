import penstock as ps

flow = ps.Flow("orders")
amounts = flow.source("amounts", int)
flow.sink("all", amounts.fold([], lambda all, amount: [*all, amount]))
