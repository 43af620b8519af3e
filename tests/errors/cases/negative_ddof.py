"""More than all values."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.moving(100).var(ddof=-1)
