import penstock as ps

flow = ps.Flow("numbers", ticks="given")
numbers, gone = flow.source("numbers", int), flow.table("gone", int)
flow.sink("out", numbers.difference(gone, lifetime="tick"))
ps.Engine(flow)
