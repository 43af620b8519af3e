"""By time, weights are powers of time."""

import headrace as hr

flow = hr.Flow("prices")
price, at = flow.signal("price", float), flow.signal("at", float)
price.ewm(halflife="10s", adjust=False, at=at).mean()
