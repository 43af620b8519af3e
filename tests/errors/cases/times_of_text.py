"""Text is no time."""

import headrace as hr

flow = hr.Flow("prices")
price, at = flow.signal("price", float), flow.signal("at", str)
price.moving("10s", at=at).mean()
