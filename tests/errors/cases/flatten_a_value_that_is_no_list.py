import headrace as hr

flow = hr.Flow("anything")
flow.sink("out", flow.source("anything", object).flatten())
hr.Engine(flow).tick(anything=[(1, 2), "text"])
