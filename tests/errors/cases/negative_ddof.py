"""More than all values."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.moving(100).var(ddof=-1)
