import headrace as hr

flow = hr.Flow("prices", ticks="given")
newest = flow.source("prices", float).latest()
flow.sink("mean", newest.moving(3).mean())
hr.Engine(flow).tick(prices=[1.0, 2.0])
