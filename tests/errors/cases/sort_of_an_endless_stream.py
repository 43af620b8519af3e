import headrace as hr

flow = hr.Flow("ranking")
scores = flow.source("scores", int)
flow.sink("ranking", scores.sort())  # type: ignore
hr.explain(flow)
