"""One way to say how fast is enough."""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.ewm(span=10, alpha=0.2).mean()
