import headrace as hr

flow = hr.Flow("prices", ticks="given")
flow.sink("newest", flow.table("prices", float).latest())
hr.Engine(flow)
