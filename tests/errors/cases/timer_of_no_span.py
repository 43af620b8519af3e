"""A signal is no span of time: the two arguments are the wrong way round."""

import penstock as ps

flow = ps.Flow("prices")
at = flow.signal("at", float)
ps.timer(at, at=at)
