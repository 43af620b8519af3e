"""A level is a number."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.crossed("100")
