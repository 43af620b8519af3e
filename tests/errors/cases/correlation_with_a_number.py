"""A number does not vary."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.moving(100).corr(3.5)
