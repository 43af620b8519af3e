import headrace as hr
from headrace.compute.plans import check_servable

flow = hr.Flow("queue")
orders = flow.source("orders", str)
numbered = orders.enumerate()
flow.sink("numbered", numbered)
check_servable(flow)
