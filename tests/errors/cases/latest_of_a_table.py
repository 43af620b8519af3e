import penstock as ps

flow = ps.Flow("prices", ticks="given")
flow.sink("newest", flow.table("prices", float).latest())
ps.Engine(flow)
