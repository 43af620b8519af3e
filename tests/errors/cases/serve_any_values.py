import penstock as ps
from penstock.compute.plans import check_servable

flow = ps.Flow("things")
things = flow.source("things", object)
flow.sink("things", things)
check_servable(flow)
