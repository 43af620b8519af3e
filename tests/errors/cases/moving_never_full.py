"""More values than the window ever has."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.moving(3, min_periods=5).mean()
