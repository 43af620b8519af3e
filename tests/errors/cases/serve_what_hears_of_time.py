import headrace as hr
from headrace import col
from headrace.compute.plans import check_servable

flow = hr.Flow("clicks")
clicks = flow.source("clicks", int)
timed = clicks.watermark(col.value, lateness=10)
flow.sink("per hour", timed.group_by(window=hr.tumbling(col.value, 60)).agg(n=hr.count()))
check_servable(flow)
