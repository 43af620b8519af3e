"""A window of no values has nothing to say."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.moving(0).mean()
