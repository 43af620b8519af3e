"""One way to say how fast is enough."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.ewm(span=10, alpha=0.2).mean()
