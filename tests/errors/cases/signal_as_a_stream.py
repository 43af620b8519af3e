import penstock as ps

flow = ps.Flow("prices")
prices = flow.source("prices", float)
prices.union(flow.signal("price", float))
