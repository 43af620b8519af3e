"""A span of time says nothing where values have no times."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.moving("10s").mean()
