"""A signal is no span of time: the two arguments are the wrong way round."""

import headrace as hr

flow = hr.Flow("prices")
at = flow.signal("at", float)
hr.timer(at, at=at)
