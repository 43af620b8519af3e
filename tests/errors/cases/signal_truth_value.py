import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
if price > 3:
    flow.sink("high", price)
