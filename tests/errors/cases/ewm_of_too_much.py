"""A value cannot lose more than its weight."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.ewm(alpha=1.5).mean()
