"""A value cannot lose more than its weight."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.ewm(alpha=1.5).mean()
