"""A level is a number."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.crossed("100")
