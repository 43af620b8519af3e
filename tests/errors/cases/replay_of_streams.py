import headrace as hr

flow = hr.Flow("prices")
flow.sink("out", flow.source("prices", float))
hr.Engine(flow).replay(prices=[1.0])
