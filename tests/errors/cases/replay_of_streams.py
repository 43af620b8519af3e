import penstock as ps

flow = ps.Flow("prices")
flow.sink("out", flow.source("prices", float))
ps.Engine(flow).replay(prices=[1.0])
