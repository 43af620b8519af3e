"""A span of ewm is a number of values."""

import headrace as hr

flow = hr.Flow("prices")
price, at = flow.signal("price", float), flow.signal("at", float)
price.ewm(span=10, at=at).mean()
