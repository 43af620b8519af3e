"""Times come as a signal."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.throttle("10s", at=12.5)
