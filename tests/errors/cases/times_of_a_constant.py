"""Times come as a signal."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.throttle("10s", at=12.5)
