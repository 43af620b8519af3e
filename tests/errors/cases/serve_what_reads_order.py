import penstock as ps
from penstock.compute.plans import check_servable

flow = ps.Flow("queue")
orders = flow.source("orders", str)
numbered = orders.enumerate()
flow.sink("numbered", numbered)
check_servable(flow)
