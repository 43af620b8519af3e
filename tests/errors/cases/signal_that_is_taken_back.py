import headrace as hr

flow = hr.Flow("numbers", ticks="given")
numbers, go = flow.source("numbers", int), flow.table("go", int)
flow.sink("out", numbers.defer_signal(go))
hr.Engine(flow)
