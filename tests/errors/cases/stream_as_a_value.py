import penstock as ps

flow = ps.Flow("prices")
prices = flow.source("prices", float)
flow.signal("price", float) + prices
