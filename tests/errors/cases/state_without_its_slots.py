import headrace as hr

flow = hr.Flow("shops")
shops = flow.source("shops", str)
flow.sink("names", shops.distinct())
flow.sink("count", shops.group_by("value").agg(n=hr.count()))
hr.Engine(flow, state={"groups": {}})
