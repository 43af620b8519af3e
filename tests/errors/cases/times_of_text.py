"""Text is no time."""

import penstock as ps

flow = ps.Flow("prices")
price, at = flow.signal("price", float), flow.signal("at", str)
price.moving("10s", at=at).mean()
