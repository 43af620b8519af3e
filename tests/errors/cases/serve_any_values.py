import penstock as ps
from penstock.compute.plans import servable

flow = ps.Flow("things")
things = flow.source("things", object)
flow.sink("things", things)
servable(flow)
