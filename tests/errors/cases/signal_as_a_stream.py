import headrace as hr

flow = hr.Flow("prices")
prices = flow.source("prices", float)
prices.union(flow.signal("price", float))
