"""A number is no span of time."""

import penstock as ps

flow = ps.Flow("prices")
at = flow.signal("at", float)
ps.timer(10, at=at)
