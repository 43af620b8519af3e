import penstock as ps
from penstock import col
from penstock.compute.plans import check_servable

flow = ps.Flow("clicks")
clicks = flow.source("clicks", int)
timed = clicks.watermark(col.value, lateness=10)
flow.sink("per hour", timed.group_by(window=ps.tumbling(col.value, 60)).agg(n=ps.count()))
check_servable(flow)
