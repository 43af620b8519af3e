"""Times are of no use to a window by count: perhaps it was meant to be one by time."""

import headrace as hr

flow = hr.Flow("prices")
price, at = flow.signal("price", float), flow.signal("at", float)
price.moving(10, at=at).mean()
