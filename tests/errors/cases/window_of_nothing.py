import penstock as ps

flow = ps.Flow("prices")
flow.signal("price", float).window(0, sum)
