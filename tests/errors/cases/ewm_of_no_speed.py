"""How fast do weights fall?"""

import headrace as hr

flow = hr.Flow("prices")
price = flow.signal("price", float)
price.ewm().mean()
