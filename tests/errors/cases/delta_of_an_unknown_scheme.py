"""A Delta table where the package that reads and writes it knows no way to."""

import penstock as ps
from penstock.io import DeltaTable

flow = ps.Flow("averages")
flow.sink("out", flow.source("in", int))

ps.run(flow, sources={"in": [1]}, sinks={"out": DeltaTable("gopher://host/averages", "value")})
