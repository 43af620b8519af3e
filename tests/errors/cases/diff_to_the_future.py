"""What comes later is not known."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.diff(-1)
