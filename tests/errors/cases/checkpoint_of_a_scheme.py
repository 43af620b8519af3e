"""A checkpoint in an object store, which has neither locks nor renames."""

import penstock as ps

flow = ps.Flow("averages")
flow.sink("out", flow.source("in", int))

ps.run(flow, sources={"in": [1]}, checkpoint="s3a://bucket/state")
