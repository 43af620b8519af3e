import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
ps.lift(max, align="newest")(price, 2)
