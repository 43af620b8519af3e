"""Quantiles are parts of 1."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.moving(100).quantile(95)
