"""Intervals for a Delta table, whose protocol has none."""

from datetime import timedelta

import penstock as ps
from penstock.io import DeltaChangelog

flow = ps.Flow("trips")
flow.sink("out", flow.source("in", timedelta))

ps.run(flow, sources={"in": [timedelta(hours=1)]}, sinks={"out": DeltaChangelog("trips")})
