"""Text has no mean."""

import penstock as ps

flow = ps.Flow("names")
name = flow.signal("name", str)
name.moving(3).mean()
