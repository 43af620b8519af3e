"""A checkpoint in an object store, which has neither locks nor renames."""

import headrace as hr

flow = hr.Flow("averages")
flow.sink("out", flow.source("in", int))

hr.run(flow, sources={"in": [1]}, checkpoint="s3a://bucket/state")
