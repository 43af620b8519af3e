"""Text has no mean."""

import headrace as hr

flow = hr.Flow("names")
name = flow.signal("name", str)
name.moving(3).mean()
