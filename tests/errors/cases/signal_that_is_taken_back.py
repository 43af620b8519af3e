import penstock as ps

flow = ps.Flow("numbers", ticks="given")
numbers, go = flow.source("numbers", int), flow.table("go", int)
flow.sink("out", numbers.defer_signal(go))
ps.Engine(flow)
