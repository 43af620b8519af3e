import headrace as hr

flow = hr.Flow("prices")
flow.signal("price", float).window(0, sum)
