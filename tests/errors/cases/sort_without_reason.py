import penstock as ps

flow = ps.Flow("ranking")
scores = flow.source("scores", int)
flow.sink("ranking", scores.sort(lifetime="tick"))
ps.explain(flow)
