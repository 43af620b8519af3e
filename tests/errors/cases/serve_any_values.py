import headrace as hr
from headrace.compute.plans import check_servable

flow = hr.Flow("things")
things = flow.source("things", object)
flow.sink("things", things)
check_servable(flow)
