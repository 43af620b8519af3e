import headrace as hr

flow = hr.Flow("numbers", ticks="given")
numbers, gone = flow.source("numbers", int), flow.table("gone", int)
flow.sink("out", numbers.difference(gone, lifetime="tick"))
hr.Engine(flow)
