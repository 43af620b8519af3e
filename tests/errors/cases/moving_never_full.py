"""More values than the window ever has."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.moving(3, min_periods=5).mean()
