import penstock as ps

flow = ps.Flow("prices")
ps.lift(max)(1, 2)
