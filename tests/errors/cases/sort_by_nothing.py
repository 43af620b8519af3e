import headrace as hr

flow = hr.Flow("ranking")
scores = flow.source("scores", int, bounded=True)
flow.sink("ranking", scores.sort(7))  # type: ignore
