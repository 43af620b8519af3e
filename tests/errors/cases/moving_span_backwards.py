"""A window that ends before it begins."""

from datetime import timedelta

import penstock as ps

flow = ps.Flow("prices")
price, at = flow.signal("price", float), flow.signal("at", float)
price.moving(timedelta(seconds=-1), at=at).mean()
