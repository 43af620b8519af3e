import penstock as ps

flow = ps.Flow("orders")
amounts = flow.table("amounts", int)
flow.sink("total", amounts.fold(0, lambda total, amount: total + amount))
ps.explain(flow)
