"""A window that ends before it begins."""

from datetime import timedelta

import headrace as hr

flow = hr.Flow("prices")
price, at = flow.signal("price", float), flow.signal("at", float)
price.moving(timedelta(seconds=-1), at=at).mean()
