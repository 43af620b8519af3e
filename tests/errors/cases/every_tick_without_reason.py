import penstock as ps

flow = ps.Flow("numbers")
numbers = flow.source("numbers", int)
flow.sink("out", numbers.every_tick())
ps.Engine(flow)
