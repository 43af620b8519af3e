"""A number that is no count could be seconds, or a slip."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.moving(2.5).mean()
