import headrace as hr

flow = hr.Flow("orders")
here, there = flow.source("here", int), flow.source("there", int)
amounts = here.union(there).distinct()
flow.sink("total", amounts.fold(0, lambda total, amount: total + amount))
hr.explain(flow)
