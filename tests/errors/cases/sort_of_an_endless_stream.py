import penstock as ps

flow = ps.Flow("ranking")
scores = flow.source("scores", int)
flow.sink("ranking", scores.sort())  # type: ignore
ps.explain(flow)
