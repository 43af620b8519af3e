import penstock as ps

flow = ps.Flow("anything")
flow.sink("out", flow.source("anything", object).flatten())
ps.Engine(flow).tick(anything=[(1, 2), "text"])
