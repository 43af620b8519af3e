"""A number that is no count could be seconds, or a slip."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.moving(2.5).mean()
