import penstock as ps

flow = ps.Flow("numbers")
numbers = flow.source("numbers", int)
flow.sink("out", numbers.distinct(lifetime="tick"))
ps.Engine(flow)
