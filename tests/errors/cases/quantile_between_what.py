"""An interpolation that there is not."""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.moving(100).quantile(0.95, interpolation="cubic")
