import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
hr.lift(max, align="newest")(price, 2)
