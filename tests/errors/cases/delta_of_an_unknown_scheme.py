"""A Delta table where the package that reads and writes it knows no way to."""

import headrace as hr
from headrace.io import DeltaTable

flow = hr.Flow("averages")
flow.sink("out", flow.source("in", int))

hr.run(flow, sources={"in": [1]}, sinks={"out": DeltaTable("gopher://host/averages", "value")})
