"""A span of time says nothing where values have no times."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.moving("10s").mean()
