"""What comes later is not known."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.diff(-1)
