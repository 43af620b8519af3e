"""Quantiles are parts of 1."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.moving(100).quantile(95)
