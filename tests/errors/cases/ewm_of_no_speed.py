"""How fast do weights fall?"""

import penstock as ps

flow = ps.Flow("prices")
price = flow.signal("price", float)
price.ewm().mean()
