import headrace as hr

flow = hr.Flow("prices")
prices = flow.source("prices", float)
flow.signal("price", float) + prices
