"""Intervals for a Delta table, whose protocol has none."""

from datetime import timedelta

import headrace as hr
from headrace.io import DeltaChangelog

flow = hr.Flow("trips")
flow.sink("out", flow.source("in", timedelta))

hr.run(flow, sources={"in": [timedelta(hours=1)]}, sinks={"out": DeltaChangelog("trips")})
