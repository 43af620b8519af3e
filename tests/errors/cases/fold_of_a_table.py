import headrace as hr

flow = hr.Flow("orders")
amounts = flow.table("amounts", int)
flow.sink("total", amounts.fold(0, lambda total, amount: total + amount))
hr.explain(flow)
