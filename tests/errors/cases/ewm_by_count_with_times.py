"""A span of ewm is a number of values."""

import penstock as ps

flow = ps.Flow("prices")
price, at = flow.signal("price", float), flow.signal("at", float)
price.ewm(span=10, at=at).mean()
