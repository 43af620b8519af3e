"""A second run of a pipeline that begins with a pushable."""

from headrace.pull import collect, pull, pushable

clicks = pushable()
pipeline = pull(clicks, collect())
clicks.end()
pipeline.run()
pipeline.run()
