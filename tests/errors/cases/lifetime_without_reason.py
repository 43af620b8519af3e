import headrace as hr

flow = hr.Flow("numbers")
numbers = flow.source("numbers", int)
flow.sink("out", numbers.distinct(lifetime="tick"))
hr.Engine(flow)
