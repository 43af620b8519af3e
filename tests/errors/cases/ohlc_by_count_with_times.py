"""Times are of no use to bars by count: perhaps they were meant to be by time."""

import headrace as hr

flow = hr.Flow("prices")
price, at = flow.signal("price", float), flow.signal("at", float)
price.ohlc(10, at=at)
