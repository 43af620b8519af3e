import penstock as ps

flow = ps.Flow("prices")
flow.sink("newest", flow.source("prices", float).latest())
ps.Engine(flow)
