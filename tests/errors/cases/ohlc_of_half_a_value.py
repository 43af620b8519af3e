"""A number of bars counts values; spans are text or timedeltas."""

import headrace as hr

flow = hr.Flow("prices")
price, at = flow.signal("price", float), flow.signal("at", float)
price.ohlc(2.5, at=at)
