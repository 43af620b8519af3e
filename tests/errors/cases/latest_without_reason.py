import headrace as hr

flow = hr.Flow("prices")
flow.sink("newest", flow.source("prices", float).latest())
hr.Engine(flow)
