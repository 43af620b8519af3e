import penstock as ps

flow = ps.Flow("shops")
shops = flow.source("shops", str)
flow.sink("names", shops.distinct())
flow.sink("count", shops.group_by("value").agg(n=ps.count()))
ps.Engine(flow, state={"groups": {}})
