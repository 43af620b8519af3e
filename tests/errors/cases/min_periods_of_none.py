"""A negative number of values."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.expanding(min_periods=-1).mean()
