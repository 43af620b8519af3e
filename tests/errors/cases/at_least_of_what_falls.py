import penstock as ps
from penstock import col

flow = ps.Flow("cheap")
prices = flow.source("prices", float)
best = prices.group_by().agg(best=ps.min(col.value))
flow.sink("cheap", best.at_least(10.0, column="best"))
