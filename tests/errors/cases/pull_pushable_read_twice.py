"""A second run of a pipeline that begins with a pushable."""

from penstock.pull import collect, pull, pushable

clicks = pushable()
pipeline = pull(clicks, collect())
clicks.end()
pipeline.run()
pipeline.run()
