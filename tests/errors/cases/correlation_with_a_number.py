"""A number does not vary."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.moving(100).corr(3.5)
