from datetime import datetime

from headrace import Engine, Flow

flow = Flow("visits")
flow.sink("all", flow.source("visits", datetime))
Engine(flow).tick(visits=[datetime(2026, 1, 2, 3)])
