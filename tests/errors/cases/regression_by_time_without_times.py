"""A window by count knows no times."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.moving(100).regression(by="time")
