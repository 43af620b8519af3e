import headrace as hr
from headrace import col

flow = hr.Flow("cheap")
prices = flow.source("prices", float)
best = prices.group_by().agg(best=hr.min(col.value))
flow.sink("cheap", best.at_least(10.0, column="best"))
