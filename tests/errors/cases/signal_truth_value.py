import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
if price > 3:
    flow.sink("high", price)
