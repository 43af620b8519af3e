"""A window of no values has nothing to say."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.moving(0).mean()
