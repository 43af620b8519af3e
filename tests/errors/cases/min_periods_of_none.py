"""A negative number of values."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.expanding(min_periods=-1).mean()
